// Requests to the server. The session is a cookie that scripts cannot read.

import type { ErrorBody } from './types';

/** Requests that change something carry this header, which no other site's page can add. */
const BOARD_HEADER = { 'X-Windlass-Board': '1' };

/** A request that failed, as it is told to a person. */
export class ApiFailure extends Error {
  constructor(
    /** The HTTP status; 0 if there was no answer. */
    readonly status: number,
    message: string,
    readonly hint: string | null = null,
  ) {
    super(message);
  }
}

/** Reads JSON. */
export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  const answer = await send(path, { signal: signal ?? null });
  return (await answer.json()) as T;
}

/** Changes something. An empty answer is undefined. */
export async function change(method: 'POST' | 'PUT' | 'DELETE', path: string, body?: unknown): Promise<unknown> {
  const headers: Record<string, string> = { ...BOARD_HEADER };
  if (body !== undefined) headers['Content-Type'] = 'application/json';
  const answer = await send(path, { method, headers, body: body === undefined ? null : JSON.stringify(body) });
  const text = await answer.text();
  return text === '' ? undefined : JSON.parse(text);
}

/** Sends a request; throws `ApiFailure` unless it succeeded. */
export async function send(path: string, init: RequestInit): Promise<Response> {
  let answer: Response;
  try {
    answer = await fetch(path, { credentials: 'same-origin', cache: 'no-store', redirect: 'error', ...init });
  } catch (e) {
    if (e instanceof DOMException && e.name === 'AbortError') throw e;
    throw new ApiFailure(0, 'the server does not answer', 'check that it runs: windlass server status');
  }
  if (answer.ok) return answer;
  throw await failureOf(answer);
}

async function failureOf(answer: Response): Promise<ApiFailure> {
  try {
    const { error } = (await answer.json()) as ErrorBody;
    return new ApiFailure(answer.status, error.message, error.hint ?? null);
  } catch {
    return new ApiFailure(answer.status, `the server answered with status ${answer.status}`);
  }
}

/** A path with a query string, or with more of one; null and empty values are left out. */
export function withParams(path: string, params: Record<string, string | number | boolean | null | undefined>): string {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params)) {
    if (value !== null && value !== undefined && value !== '') query.set(key, String(value));
  }
  const text = query.toString();
  return text === '' ? path : `${path}${path.includes('?') ? '&' : '?'}${text}`;
}
