// The board of a running server, in Chromium. It reads:
//   BASE     address of the server, such as http://127.0.0.1:7117
//   TOKEN    an administrator's token, or CODE, the code of a one-time link
//   VIEWER   a viewer's token (optional): nothing that acts may be shown
//   JOB      a job that will end; LOG_JOB and LOG_TEXT a job whose task 0 prints LOG_TEXT; QUEUE a queue of its own.
//            Without them, jobs are submitted over the interface with TOKEN
//   WORKER   a worker that may be drained for a moment; the first that is up by default
//   SHOTS    a directory for pictures of every view, light and dark
// It ends with status 1 if something differs, or if a page showed an error or a serious fault of accessibility.

import { check, signIn, waitForHeading } from './browser.mjs';
import * as flows from './flows.mjs';
import { openParts } from './parts.mjs';

const base = (process.env.BASE ?? '').replace(/\/$/, '');
const { TOKEN: token, CODE: code, VIEWER: viewer } = process.env;
if (!base || !(token || code)) throw new Error('give BASE, and TOKEN or CODE');
const queue = process.env.QUEUE ?? 'board-test';

/** Asks the server as a program does. */
async function api(method, path, body) {
  const answer = await fetch(`${base}/api/v1${path}`, {
    method,
    headers: { Authorization: `Bearer ${token}`, ...(body && { 'Content-Type': 'application/json' }) },
    body: body && JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text === '' ? undefined : JSON.parse(text);
}

/** Submits an array of shell commands; returns the job's id. */
async function submit(name, command, tasks, into) {
  const { job } = await api('POST', '/jobs', {
    name,
    ...(into && { queue: into }),
    steps: [
      {
        name: 'step',
        command: ['sh', '-c', command],
        cwd: '/',
        param: { range: { start: 1, end: tasks } },
        resources: { cpus: 0.1 },
      },
    ],
  });
  return job;
}

// A link works once: its session is used by all pages.
let shared;
async function enter(page, { token: secret = token }) {
  if (secret) return signIn(page, base, secret);
  if (shared) await page.context().addCookies(shared);
  await page.goto(shared ? `${base}/` : `${base}/#code=${code}`);
  await waitForHeading(page, 'Overview');
  check(!page.url().includes('code'), 'the code is still in the address');
  shared ??= await page.context().cookies();
  return undefined;
}

const { part, lookAtAll, end } = await openParts({ enter });

await part('a job ends before the eyes of the person', async (page) => {
  const job = process.env.JOB ?? (await submit('board-watch', 'sleep 0.3; echo frame {}', 20));
  const state = await flows.watchToTheEnd(page, base, job);
  check(state === 'succeeded', `it ended as ${state}`);
  await page.getByRole('row').nth(1).waitFor();
});

await part('a log is followed, and markup stays text', async (page) => {
  const markup = "<script>document.title='broken'</script><img src=x onerror=alert(1)>";
  const job =
    process.env.LOG_JOB ??
    (await submit('board-log', `for i in 1 2 3 4 5 6; do echo "line $i ${markup}"; sleep 0.5; done; echo the end`, 1));
  const log = await flows.followLog(page, base, job, 0, process.env.LOG_TEXT ?? 'the end');
  check((await log.locator('img, script').count()) === 0, 'output became markup');
  check(!(await page.title()).includes('broken'), 'output ran');
  if (!process.env.LOG_TEXT) await page.getByRole('log').getByText(markup, { exact: false }).first().waitFor();
});

if (token) {
  await part('a queue is paused; why says so; resuming it starts the task', async (page) => {
    await api('PUT', `/queues/${queue}`, { weight: 100 });
    await flows.pauseQueue(page, base, queue, 'the filer is full');
    const job = await submit('board-why', 'echo started', 1, queue);
    const { word, text, changes } = await flows.readReason(page, base, job, 0);
    check(word === 'paused' && text.includes('the filer is full'), `the reason is ${word}: ${text}`);
    check(changes.join().includes('resume'), `the advice is ${changes}`);
    const other = await page.context().newPage();
    await flows.resumeQueue(other, base, queue);
    await flows.waitForReason(page, ['ended', 'running', 'booked']);
    await other.close();
  });

  await part('a job is held, released and cancelled', async (page) => {
    const job = await submit('board-act', 'sleep 30', 2);
    await flows.actOnJob(page, base, job, 'Hold', 'held');
    const { word } = await flows.readReason(page, base, job, 1);
    check(['held', 'running', 'booked'].includes(word), `the reason is ${word}`);
    await flows.actOnJob(page, base, job, 'Release', '');
    await flows.actOnJob(page, base, job, 'Cancel', 'cancelled');
  });
}

const workers = token ? (await api('GET', '/workers?limit=100')).items : [];
const worker = process.env.WORKER ?? workers.find((one) => one.state === 'up')?.name;
if (worker) {
  await part('a worker is drained and resumed', async (page) => {
    await flows.drainWorker(page, base, worker, 'new disks');
    await flows.resumeWorker(page);
  });
}

if (viewer) {
  await part(
    'a viewer sees nothing that acts',
    async (page) => {
      for (const path of ['/jobs', '/workers', '/queues', ...(worker ? [`/workers/${worker}`] : [])]) {
        await page.goto(base + path);
        await page.locator('h1').waitFor();
        await page.waitForTimeout(500);
        check(
          (await page
            .getByRole('button', { name: /^(Cancel|Retry|Hold|Release|Priority|Pause|Resume|Weight|Drain)…$/ })
            .count()) === 0,
          `${path} offers an action`,
        );
      }
      // Asked beside the page, whose console would show the refusal as an error.
      const refused = await page.context().request.put(`${base}/api/v1/queues/default`, {
        headers: { Origin: base, 'X-Windlass-Board': '1', 'Content-Type': 'application/json' },
        data: '{"weight":1}',
      });
      check(refused.status() === 403, `a viewer set a queue: status ${refused.status()}`);
    },
    { token: viewer },
  );
}

const last = token ? (await api('GET', '/jobs?limit=1')).items[0]?.id : process.env.JOB;
const views = {
  overview: '/',
  jobs: '/jobs',
  workers: '/workers',
  queues: '/queues',
  scheduler: '/scheduler',
  history: '/history',
  ...(last && {
    job: `/jobs/${last}?task=0`,
    timeline: `/jobs/${last}?tab=timeline`,
    steps: `/jobs/${last}?tab=steps`,
    log: `/jobs/${last}?tab=log&task=0`,
    why: `/jobs/${last}/why?task=0`,
  }),
  ...(worker && { worker: `/workers/${worker}` }),
};
await lookAtAll(base, views);
await end();
