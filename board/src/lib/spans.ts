// The spans of time that charts show.

export type Span = 'hour' | 'day';

export const SPANS: readonly { value: Span; text: string }[] = [
  { value: 'hour', text: 'Last hour' },
  { value: 'day', text: 'Last day' },
];
