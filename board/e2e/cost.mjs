// What ten open boards cost a running server, while it runs about 50 tasks a second:
//   BASE, TOKEN (an administrator's), PID of the server's process. CPUS of all workers (6), SECONDS of each half (60).
// First without boards, then with ten that ask as the views do when something changes all the time: four show the
// overview, two the jobs, one each a job, the workers, the queues and the scheduler. They are no browsers, so that
// ten of them leave the processor to the server.

import { readFileSync } from 'node:fs';

const base = process.env.BASE.replace(/\/$/, '');
const headers = { Authorization: `Bearer ${process.env.TOKEN}`, 'Accept-Encoding': 'identity' };
const seconds = Number(process.env.SECONDS ?? 60);
const slots = 50;
const share = Math.floor((Number(process.env.CPUS ?? 6) / slots) * 100) / 100;
const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function api(method, path, body) {
  const answer = await fetch(`${base}/api/v1${path}`, {
    method,
    headers: { ...headers, 'Content-Type': 'application/json' },
    body: body && JSON.stringify(body),
  });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** Seconds of processor time that the server has used. */
function cpuSeconds() {
  const fields = readFileSync(`/proc/${process.env.PID}/stat`, 'utf8').split(') ')[1].split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
}

const { job } = await api('POST', '/jobs', {
  name: 'board-cost',
  steps: [
    {
      name: 'step',
      command: ['/bin/sleep', '1'],
      cwd: '/',
      param: { range: { start: 1, end: slots * (2 * seconds + 60) } },
      resources: { cpus: share },
    },
  ],
});

const read = new Map();
let streamed = 0;
const abort = new AbortController();

async function poll(path, every_ms) {
  const sums = read.get(path) ?? { requests: 0, bytes: 0 };
  read.set(path, sums);
  while (!abort.signal.aborted) {
    const began = performance.now();
    const body = await (await fetch(`${base}/api/v1${path}`, { headers, signal: abort.signal })).arrayBuffer();
    sums.requests += 1;
    sums.bytes += body.byteLength;
    await wait(every_ms - (performance.now() - began));
  }
}
async function stream(query) {
  const { body } = await fetch(`${base}/api/v1/events${query}`, { headers, signal: abort.signal });
  for await (const chunk of body) streamed += chunk.length;
}

// Paths with the least time between two readings of them (`gap_ms` in the views).
const SERIES = ['/board/series?span=hour', 10_000];
const OVERVIEW = [['/board/overview', 2_000], SERIES, ['/board/jobs/pending', 3_000]];
const JOBS = [
  ['/jobs?limit=100', 10_000],
  ['/board/overview', 5_000],
];
const BOARDS = [
  ...Array(4).fill(OVERVIEW),
  JOBS,
  JOBS,
  [
    [`/jobs/${job}`, 1_000],
    [`/jobs/${job}/tasks?limit=100`, 1_000],
  ],
  [
    ['/board/workers', 3_000],
    ['/scheduler/server_loads', 3_000],
  ],
  [['/queues?limit=1000', 2_000], SERIES],
  [['/board/scheduler', 2_000], ['/board/scoring/summary', 10_000], ['/board/jobs/decisions?limit=20', 10_000], SERIES],
];

async function measure(name) {
  const before = (await api('GET', `/jobs/${job}`)).counts.succeeded;
  const [cpu, began, events] = [cpuSeconds(), performance.now(), streamed];
  for (const sums of read.values()) Object.assign(sums, { requests: 0, bytes: 0 });
  await wait(seconds * 1000);
  const took = (performance.now() - began) / 1000;
  const used = ((cpuSeconds() - cpu) / took) * 100;
  const rate = ((await api('GET', `/jobs/${job}`)).counts.succeeded - before) / took;
  console.log(`${name}: ${used.toFixed(1)}% of a core, ${rate.toFixed(1)} tasks a second`);
  return { used, took, events: streamed - events };
}

await wait(5_000);
const without = await measure('without boards ');
const running = BOARDS.flatMap((board) => [
  stream(board.some(([path]) => path.startsWith('/jobs/')) ? `?job=${job}` : '?brief=true'),
  ...board.map(([path, every_ms]) => poll(path, every_ms)),
]);
for (const one of running)
  one.catch((error) => {
    if (!abort.signal.aborted) throw error;
  });
await wait(3_000);
const ten = await measure('with ten boards');
console.log(`ten boards: ${(ten.used - without.used).toFixed(1)}% of a core`);
console.log(`events: ${(ten.events / ten.took / 1000).toFixed(2)} kB a second in all`);
for (const [path, { requests, bytes }] of read)
  console.log(
    `${path.padEnd(34)} ${(requests / ten.took).toFixed(2)} requests a second, ` +
      `${(bytes / ten.took / 1000).toFixed(1)} kB a second`,
  );
abort.abort();
await api('POST', `/jobs/${job}/cancel`);
