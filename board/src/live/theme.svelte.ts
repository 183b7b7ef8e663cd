// Light or dark: as the system says, unless the person chose otherwise.

export type Choice = 'system' | 'light' | 'dark';

const KEY = 'windlass-theme';
const system = matchMedia('(prefers-color-scheme: dark)');

class Theme {
  choice = $state<Choice>(remembered());
  private systemDark = $state(system.matches);
  dark = $derived(this.choice === 'system' ? this.systemDark : this.choice === 'dark');

  constructor() {
    system.addEventListener('change', () => {
      this.systemDark = system.matches;
    });
    this.show();
  }

  /** Goes from what the system says to the other one and back. */
  toggle(): void {
    const other = this.dark ? 'light' : 'dark';
    this.choice = (other === 'dark') === this.systemDark ? 'system' : other;
    try {
      if (this.choice === 'system') localStorage.removeItem(KEY);
      else localStorage.setItem(KEY, this.choice);
    } catch {
      // A browser that keeps nothing for this page shows the choice until it is closed.
    }
    this.show();
  }

  private show(): void {
    if (this.choice === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = this.choice;
  }
}

function remembered(): Choice {
  try {
    const kept = localStorage.getItem(KEY);
    return kept === 'light' || kept === 'dark' ? kept : 'system';
  } catch {
    return 'system';
  }
}

export const theme = new Theme();
