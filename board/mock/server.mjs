// A stand-in for the server, for work on the board and for its tests: `node mock/server.mjs [--mode big] [--port N]`.
// Without --open it asks for a token: `admin`, `ann` (a user) or `viewer`; `/#code=once` signs in once.

import { createHash, randomBytes } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { gzipSync } from 'node:zlib';
import * as answers from './answers.mjs';
import { Farm } from './farm.mjs';
import * as figures from './figures.mjs';

const DIST = fileURLToPath(new URL('../dist/', import.meta.url));
const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; " +
  "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript',
  '.css': 'text/css',
  '.svg': 'image/svg+xml',
};
const CALLERS = {
  admin: { name: 'root', role: 'admin' },
  ann: { name: 'ann', role: 'user' },
  viewer: { name: 'guest', role: 'viewer' },
};
const TOP_BYTES = 1 << 16;

class Refusal extends Error {
  constructor(status, code, message, hint) {
    super(message);
    Object.assign(this, { status, body: { error: { code, message, ...(hint && { hint }) } } });
  }
}

/** Starts the stand-in; resolves to its address and what ends it. */
export async function serve({ mode = 'small', port = 0, open = false, still = false } = {}) {
  const farm = new Farm(mode);
  const sessions = new Map();
  const codes = new Set(['once']);
  const state = { farm, sessions, codes, open, files: readFiles(), cut: false };
  const timer = still ? undefined : setInterval(() => farm.tick(), farm.size.tick_ms);
  if (!still) for (let i = 0; i < 3; i += 1) farm.tick();
  const server = createServer((request, response) => {
    handle(state, request, response).catch((error) => {
      if (response.headersSent) return response.destroy();
      const refusal = error instanceof Refusal ? error : new Refusal(500, 'internal', String(error?.stack ?? error));
      return json(request, response, refusal.body, refusal.status);
    });
  });
  await new Promise((resolve) => {
    server.listen(port, '127.0.0.1', resolve);
  });
  return {
    farm,
    state,
    address: `http://127.0.0.1:${server.address().port}`,
    stop: () => {
      clearInterval(timer);
      server.closeAllConnections();
      return new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}

function readFiles() {
  if (!existsSync(join(DIST, 'index.html'))) throw new Error('board/dist is missing: run npm run build');
  const assets = readdirSync(join(DIST, 'assets')).map((name) => `assets/${name}`);
  return new Map(
    ['index.html', ...assets].map((name) => {
      const bytes = readFileSync(join(DIST, name));
      return [
        `/${name}`,
        {
          bytes,
          zipped: gzipSync(bytes, { level: 9 }),
          type: TYPES[extname(name)],
          tag: `"${createHash('sha256').update(bytes).digest('hex').slice(0, 16)}"`,
        },
      ];
    }),
  );
}

async function handle(state, request, response) {
  const url = new URL(request.url, 'http://mock');
  response.setHeader('Content-Security-Policy', POLICY);
  response.setHeader('X-Content-Type-Options', 'nosniff');
  if (!url.pathname.startsWith('/api/')) return page(state, request, response, url.pathname);
  if (state.cut) return request.socket.destroy();
  const path = url.pathname.slice('/api/v1'.length);
  const cookie = /(?:^|; )windlass_session=([^;]+)/.exec(request.headers.cookie ?? '')?.[1];
  if (request.method !== 'GET') guard(request);
  if (path === '/board/session') return session(state, request, response, cookie);
  const token = /^Bearer (.+)$/.exec(request.headers.authorization ?? '')?.[1];
  const caller = CALLERS[token] ?? state.sessions.get(cookie) ?? (state.open ? CALLERS.admin : undefined);
  if (!caller) throw new Refusal(401, 'unauthorized', 'the server asks for a token', 'sign in with a token');
  const how = token ? 'token' : cookie ? 'session' : 'none';
  if (request.method === 'GET') return read(state, request, response, path, url.searchParams, { ...caller, how });
  return write(state, request, response, path, caller, await body(request));
}

// Other sites' pages cannot add the header, and their origin is not ours.
function guard(request) {
  const own =
    request.headers['x-windlass-board'] === '1' &&
    new URL(request.headers.origin ?? 'http://other').host === request.headers.host;
  if (!own && !request.headers.authorization)
    throw new Refusal(403, 'forbidden', 'the request comes from another page');
}

async function session(state, request, response, cookie) {
  if (request.method === 'DELETE') state.sessions.delete(cookie);
  else {
    const { token, code } = await body(request);
    const caller = code !== undefined ? (state.codes.delete(code) ? CALLERS.admin : undefined) : CALLERS[token];
    if (!caller)
      throw new Refusal(
        401,
        'unauthorized',
        code ? 'the link was used before, or is too old' : 'the token is not known',
        code ? "make another with 'windlass board'" : 'ask an administrator for a token',
      );
    const id = randomBytes(16).toString('hex');
    state.sessions.set(id, caller);
    response.setHeader('Set-Cookie', `windlass_session=${id}; HttpOnly; SameSite=Strict; Path=/`);
  }
  response.writeHead(204).end();
}

function page(state, request, response, path) {
  const file = state.files.get(path) ?? (path.startsWith('/assets/') ? undefined : state.files.get('/index.html'));
  if (!file) return response.writeHead(404).end();
  const zipped = /\bgzip\b/.test(request.headers['accept-encoding'] ?? '');
  response.setHeader('ETag', file.tag);
  response.setHeader('Cache-Control', path.startsWith('/assets/') ? 'public, max-age=31536000, immutable' : 'no-cache');
  if (request.headers['if-none-match'] === file.tag) return response.writeHead(304).end();
  return response
    .writeHead(200, { 'Content-Type': file.type, ...(zipped && { 'Content-Encoding': 'gzip' }) })
    .end(zipped ? file.zipped : file.bytes);
}

async function body(request) {
  let text = '';
  for await (const chunk of request)
    if ((text += chunk).length > TOP_BYTES) throw new Refusal(413, 'too_large', 'the body is too large');
  try {
    return text === '' ? {} : JSON.parse(text);
  } catch {
    throw new Refusal(400, 'bad_request', 'the body is not JSON');
  }
}

function json(request, response, value, status = 200) {
  const text = JSON.stringify(value);
  const zip = text.length > 4096 && /\bgzip\b/.test(request.headers['accept-encoding'] ?? '');
  response.writeHead(status, {
    'Content-Type': 'application/json',
    'Cache-Control': 'no-store',
    ...(zip && { 'Content-Encoding': 'gzip' }),
  });
  response.end(zip ? gzipSync(text, { level: 1 }) : text);
}

const found = (thing, what) => {
  if (!thing) throw new Refusal(404, 'not_found', `there is no ${what}`);
  return thing;
};

function read(state, request, response, path, query, caller) {
  const { farm } = state;
  const reply = (value) => json(request, response, value);
  const board = (message) => reply({ error: false, message });
  const [, first, second, third, fourth] = path.split('/').map(decodeURIComponent);
  const jobOf = (id) => found(farm.jobs[Number(id) - 1], `job ${id}`);
  const workerOf = (name) => found(farm.byName.get(name), `worker ${name}`);
  const span = query.get('span') === 'day' ? 'day' : 'hour';
  if (first === 'events') return events(state, request, response, query);
  if (first === 'board') {
    switch (`${second}/${third ?? ''}`) {
      case 'me/':
        return reply({
          name: caller.name,
          role: caller.role,
          version: '0.4.0',
          time_ms: Date.now(),
          signed_in_by: caller.how,
        });
      case 'overview/':
        return reply(figures.overview(farm));
      case 'series/':
        return reply(farm.series[span]);
      case 'scheduler/':
        return reply(figures.scheduler(farm));
      case 'history/':
        return reply(figures.history(farm, query));
      case 'usage/':
        return reply(figures.usage(farm, Number(query.get('days') ?? 7)));
      case 'workers/':
        return board(answers.boardWorkers(farm));
      case 'scoring/rules':
        return board(figures.RULES);
      case 'scoring/summary':
        return board(figures.scoring(farm));
      case 'jobs/pending':
        return board({ jobs: figures.pending(farm), other_pending: 0 });
      case 'jobs/decisions':
        if (caller.role !== 'admin') throw new Refusal(403, 'forbidden', 'decisions are for administrators');
        return board(farm.decisions.slice(0, Number(query.get('limit') ?? 100)));
    }
  }
  if (first === 'jobs' && !second) return reply(answers.jobsPage(farm, query));
  if (first === 'jobs') {
    const job = jobOf(second);
    if (!third) return reply(answers.jobJson(farm, job, true, caller.role === 'admin' || caller.name === job.user));
    if (third === 'tasks') return reply(answers.tasksPage(farm, job, query));
    if (third === 'failures') return reply(answers.failures(farm, job));
    if (third === 'grid') return reply(answers.gridPage(job, Number(query.get('from') ?? 0)));
  }
  if (first === 'tasks') {
    const [id, index] = second.split('.').map(Number);
    const job = jobOf(id);
    if (!(index < job.states.length)) throw new Refusal(404, 'not_found', `job ${id} has no task ${index}`);
    if (!third) return reply(answers.taskJson(farm, job, index, true));
    if (third === 'why') return reply(answers.why(farm, job, index));
    if (third === 'log' && fourth === 'lines') return reply(logLines(farm, job, index, caller));
    if (third === 'log') return log(state, response, job, index, query, caller);
  }
  if (first === 'workers' && second) {
    const worker = workerOf(second);
    if (!third) return reply(answers.workerJson(farm, worker));
    if (third === 'why') return reply(answers.workerWhy(farm, worker));
    if (third === 'series') return reply(figures.workerSeries(farm, worker, span));
  }
  if (first === 'scheduler' && second === 'server_loads') return reply(answers.serverLoads(farm));
  if (first === 'tokens') {
    if (caller.role !== 'admin') throw new Refusal(403, 'forbidden', 'tokens are for administrators');
    return reply({ items: farm.tokens.filter((token) => token.user.includes(query.get('user') ?? '')) });
  }
  if (first === 'limits' && second) {
    const limit = found(
      farm.limits.find((one) => one.name === second),
      `limit ${second}`,
    );
    return reply(answers.limitJson(farm, limit, true));
  }
  if (first === 'limits') return reply({ items: farm.limits.map((limit) => answers.limitJson(farm, limit)) });
  if (first === 'queues') {
    if (second) return reply(answers.queueJson(farm, found(farm.queueOf.get(second), `queue ${second}`)));
    return reply({
      items: farm.queues
        .filter((queue) => queue.name.includes(query.get('name') ?? ''))
        .map((queue) => answers.queueJson(farm, queue)),
    });
  }
  throw new Refusal(404, 'not_found', `there is nothing at ${path}${fourth ?? ''}`);
}

function write(state, request, response, path, caller, value) {
  const { farm } = state;
  const [, first, name, action] = path.split('/').map(decodeURIComponent);
  const admin = () => {
    if (caller.role !== 'admin')
      throw new Refusal(403, 'forbidden', 'this is for administrators', 'ask an administrator');
  };
  if (first === 'jobs' && ['cancel', 'retry', 'hold', 'release', 'priority'].includes(action)) {
    const job = found(farm.jobs[Number(name) - 1], `job ${name}`);
    if (caller.role === 'viewer' || (caller.role === 'user' && job.user !== caller.name))
      throw new Refusal(403, 'forbidden', `job ${name} is ${job.user}'s`, 'ask its user');
    farm.act(job, action, value);
    return json(request, response, answers.jobJson(farm, job, true));
  }
  if (first === 'tasks' && (action === 'retry' || action === 'cancel')) {
    const [id, index] = name.split('.').map(Number);
    const job = found(farm.jobs[id - 1], `job ${id}`);
    if (caller.role === 'viewer' || (caller.role === 'user' && job.user !== caller.name))
      throw new Refusal(403, 'forbidden', `job ${id} is ${job.user}'s`, 'ask its user');
    farm.actOnTask(job, index, action);
    return json(request, response, answers.taskJson(farm, job, index, true));
  }
  if (first === 'workers' && (action === 'drain' || action === 'resume')) {
    admin();
    const worker = found(farm.byName.get(name), `worker ${name}`);
    farm.drain(worker, action === 'drain', value.note ?? null);
    return json(request, response, answers.workerJson(farm, worker));
  }
  if (first === 'queues' && request.method === 'PUT') {
    admin();
    const queue = found(farm.queueOf.get(name), `queue ${name}`);
    if (value.weight !== undefined && !(value.weight >= 1 && value.weight <= 10_000))
      throw new Refusal(400, 'bad_request', `a weight is from 1 to 10000, and ${value.weight} was given`);
    Object.assign(queue, value);
    return json(request, response, answers.queueJson(farm, queue));
  }
  if (first === 'tokens' && request.method === 'DELETE') {
    admin();
    const token = found(
      farm.tokens.find((one) => one.id === name),
      `token ${name}`,
    );
    token.revoked_ms = farm.now;
    return json(request, response, token);
  }
  if (first === 'limits' && request.method === 'PUT') {
    admin();
    let limit = farm.limits.find((one) => one.name === name);
    if (!limit) farm.limits.push((limit = { name }));
    Object.assign(limit, value);
    return json(request, response, answers.limitJson(farm, limit));
  }
  throw new Refusal(404, 'not_found', `there is nothing at ${path}`);
}

function events(state, request, response, query) {
  const job = query.get('job');
  const brief = query.get('brief') === 'true';
  response.writeHead(200, { 'Content-Type': 'text/event-stream', 'Cache-Control': 'no-store' });
  response.write(':\n\n');
  const last = new Map();
  const tell = (event) => {
    const name = typeof event === 'string' ? event : Object.keys(event)[0];
    if (job && (event.job ?? event.tasks)?.job !== Number(job)) return;
    let said = event;
    if (brief && event.tasks) {
      // Without its tasks an event of a job is told once a second.
      if (Date.now() - (last.get(event.tasks.job) ?? 0) < 1000) return;
      last.set(event.tasks.job, Date.now());
      said = { tasks: { job: event.tasks.job, counts: event.tasks.counts, tasks: [] } };
    }
    response.write(`event: ${name}\ndata: ${JSON.stringify(said)}\n\n`);
  };
  state.farm.listeners.add(tell);
  response.on('close', () => state.farm.listeners.delete(tell));
}

function mayReadLog(job, index, caller) {
  if (caller.role !== 'admin' && caller.name !== job.user)
    throw new Refusal(
      403,
      'forbidden',
      `the output of task ${job.id}.${index} is another user's`,
      'ask its user or an administrator',
    );
}

/** Both outputs of an attempt in the order in which they were written: standard error at the end. */
function logLines(farm, job, index, caller) {
  mayReadLog(job, index, caller);
  const begun = answers.taskJson(farm, job, index, true).started_ms ?? farm.now;
  const next = { stdout: 0, stderr: 0 };
  const lines = [];
  for (const stream of job.states[index] < 3 ? [] : ['stdout', 'stderr'])
    for (const text of answers.logText(job, index, stream).split('\n').slice(0, -1)) {
      const bytes = Buffer.byteLength(text) + 1;
      lines.push({ stream, at_ms: begun + 250 * Math.floor(lines.length / 20), offset: next[stream], bytes, text });
      next[stream] += bytes;
    }
  return { lines, next_stdout: next.stdout, next_stderr: next.stderr, more: false };
}

function log(state, response, job, index, query, caller) {
  mayReadLog(job, index, caller);
  const running = job.states[index] === 3;
  const text = job.states[index] < 3 ? '' : answers.logText(job, index, query.get('stream'), running ? 40 : 900);
  const bytes = Buffer.from(text);
  const offset = Number(query.get('offset') ?? 0);
  const from = offset < 0 ? Math.max(0, bytes.length + offset) : Math.min(bytes.length, offset);
  response.writeHead(200, {
    'Content-Type': 'application/octet-stream',
    'Cache-Control': 'no-store',
    ...(offset < 0 && { 'windlass-log-offset': from }),
  });
  if (job.states[index] < 3) return response.end();
  response.write(bytes.subarray(from));
  if (!running || query.get('follow') !== 'true') return response.end();
  let line = 0;
  const timer = setInterval(() => {
    if (job.states[index] !== 3) {
      clearInterval(timer);
      response.end('\u001b[1mdone\u001b[0m\n');
    } else response.write(`\u001b[2m[live ${(line += 1)}]\u001b[0m sample ${line * 16} of 4096\n`);
  }, 200);
  response.on('close', () => clearInterval(timer));
  return undefined;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const { values } = parseArgs({
    options: {
      mode: { type: 'string', default: 'small' },
      port: { type: 'string', default: '7180' },
      open: { type: 'boolean', default: false },
    },
  });
  const { address } = await serve({ mode: values.mode, port: Number(values.port), open: values.open });
  console.log(
    `the board with a made-up ${values.mode} farm: ${address}${values.open ? '' : ' (tokens: admin, ann, viewer)'}`,
  );
}
