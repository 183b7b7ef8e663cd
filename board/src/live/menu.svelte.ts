// The actions of a row, where the row has no room for buttons.

export interface MenuEntry {
  text: string;
  danger?: boolean;
  run: () => void;
}

class Menu {
  title = $state('');
  entries = $state.raw<readonly MenuEntry[]>([]);

  /** Opens the menu of a row. */
  open(title: string, entries: readonly MenuEntry[]): void {
    this.title = title;
    this.entries = entries;
  }

  close(): void {
    this.entries = [];
  }
}

export const menu = new Menu();
