// Questions before an action, and what became of it.

/** A value that a person gives with an action. */
export interface Field {
  label: string;
  kind: 'text' | 'number' | 'choice';
  value: string;
  /** What the value means, or what an empty one means. */
  note?: string;
  min?: number;
  max?: number;
  /** For amounts with decimals. */
  step?: 'any';
  required?: boolean;
  /** What can be chosen. */
  options?: readonly { value: string; text: string }[];
}

export interface Question {
  title: string;
  /** What the action does, and what it does not. */
  text: string;
  /** The word on the button. */
  verb: string;
  /** True if the action cannot be taken back. */
  danger?: boolean;
  /** Values to give with the action, in their order. */
  fields?: readonly Field[];
  /** Does it, with the values of the fields; an error is shown in the dialog, which stays open. */
  run: (...values: string[]) => Promise<void>;
  /** What is said once it is done. */
  done: string;
}

/** How long a message stays. */
const NOTICE_MS = 6_000;

class Ask {
  question = $state.raw<Question | undefined>(undefined);
  notice = $state('');
  private timer: ReturnType<typeof setTimeout> | undefined;

  /** Opens the dialog. */
  about(question: Question): void {
    this.question = question;
  }

  close(): void {
    this.question = undefined;
  }

  /** Says something at the edge of the page for a while. */
  tell(text: string): void {
    this.notice = text;
    clearTimeout(this.timer);
    this.timer = setTimeout(() => {
      this.notice = '';
    }, NOTICE_MS);
  }
}

export const ask = new Ask();
