// The board against a made-up farm, in Chromium: `npm run e2e`. Each part has its own page; all must show no errors.

import { audit, check, signIn, waitForHeading } from './browser.mjs';
import * as flows from './flows.mjs';
import { openParts } from './parts.mjs';
import { serve } from '../mock/server.mjs';

const { farm, state, address: base, stop } = await serve();
const { part, end } = await openParts({
  // `signedOut` begins before a session is there.
  enter: (page, { token = 'admin', signedOut = false }) => (signedOut ? undefined : signIn(page, base, token)),
  only: process.argv[2],
});
const running = () =>
  farm.open.find((job) => job.state === 'running' && job.counts[3] > 0 && job.states.length < 400 && !job.impossible);

await part(
  'a wrong token is refused, a right one is kept nowhere in the page',
  async (page, errors) => {
    await page.goto(`${base}/jobs?state=running`);
    await page.getByLabel('Token').fill('wrong');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await page.getByText('the token is not known').waitFor();
    await page.getByLabel('Token').fill('admin');
    await page.getByRole('button', { name: 'Sign in' }).click();
    await waitForHeading(page, 'Jobs');
    check(page.url().endsWith('/jobs?state=running'), `the address is ${page.url()}`);
    const kept = await page.evaluate(
      () => JSON.stringify(localStorage) + JSON.stringify(sessionStorage) + document.cookie,
    );
    check(kept === '{}{}', `the page kept ${kept}`);
    const [cookie] = await page.context().cookies();
    check(cookie.httpOnly && cookie.sameSite === 'Strict', 'the cookie can be read by scripts, or by other sites');
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.getByLabel('Token').waitFor();
    errors.length = 0;
  },
  { signedOut: true },
);

await part(
  'a link signs in once, and its code leaves the address',
  async (page, errors) => {
    await page.goto(`${base}/#code=once`);
    await waitForHeading(page, 'Overview');
    check(page.url() === `${base}/`, `the address is ${page.url()}`);
    await page.getByRole('button', { name: 'Sign out' }).click();
    await page.goto(`${base}/workers#code=once`);
    await page.getByText('the link was used before').waitFor();
    errors.length = 0;
  },
  { signedOut: true },
);

await part('a job ends before the eyes of the person', async (page) => {
  const state = await flows.watchToTheEnd(page, base, running().id);
  check(['succeeded', 'failed'].includes(state), `it ended as ${state}`);
});

await part('a log is followed, searched, and shows markup as text', async (page) => {
  const job = running();
  const task = [...job.tasks].reverse().find(([index]) => job.states[index] === 3)[0];
  const log = await flows.followLog(page, base, job.id, task, '[live 3]');
  check(
    (await page.evaluate(() => document.querySelectorAll('[role=log] img, [role=log] script').length)) === 0,
    'output became markup',
  );
  await page.goto(`${base}/jobs/${job.id}?tab=log&task=${task}&stream=stderr`);
  await page.getByRole('log').getByText("<script>document.title = 'broken'</script>").waitFor();
  check(!(await page.title()).includes('broken'), 'output ran');
  await page.goto(`${base}/jobs/1?tab=log&task=0`);
  await log.getByText('tile 2,14').first().waitFor();
  await page.getByLabel('Search in the log').fill('OUT OF samples');
  await page.getByText('1 of 10').waitFor();
  check((await page.locator('mark').count()) > 0, 'nothing is marked');
});

await part('a reason is read, and the advice starts the task', async (page) => {
  const job = farm.jobs.find((one) => one.state === 'held');
  const { word, changes } = await flows.readReason(page, base, job.id);
  check(word === 'held' && changes.join().includes('release'), `the reason is ${word}, the advice ${changes}`);
  await page.getByRole('button', { name: 'Release…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Release', exact: true }).click();
  await flows.waitForReason(page, ['full', 'running', 'ended']);
  const impossible = await flows.readReason(page, base, farm.jobs.find((one) => one.impossible).id);
  check(impossible.word === 'fits_nowhere', `the reason is ${impossible.word}`);
});

await part('a worker is drained and resumed', async (page) => {
  await flows.drainWorker(page, base, 'box2', 'new disks');
  check(
    farm.byName.get('box2').draining && farm.byName.get('box2').note === 'new disks',
    'the server knows nothing of it',
  );
  await flows.resumeWorker(page);
});

await part('a queue is paused with a note, weighed and resumed', async (page) => {
  await flows.pauseQueue(page, base, 'compile', 'the filer is full');
  await flows.weighQueue(page, base, 'compile', 350);
  await flows.resumeQueue(page, base, 'compile');
  check(
    farm.queueOf.get('compile').weight === 350 && farm.queueOf.get('compile').paused === null,
    'the server knows nothing of it',
  );
});

await part('a job is held, released, moved ahead, cancelled and retried', async (page) => {
  const job = farm.submit(0, 3000);
  await flows.actOnJob(page, base, job.id, 'Hold', 'held');
  await flows.actOnJob(page, base, job.id, 'Release', '');
  await flows.actOnJob(page, base, job.id, 'Priority', '', 77);
  check(job.priority === 77, `the priority is ${job.priority}`);
  await flows.actOnJob(page, base, job.id, 'Cancel', 'cancelled');
  await flows.actOnJob(page, base, job.id, 'Retry', 'running');
  await flows.actOnJob(page, base, job.id, 'Cancel', 'cancelled');
});

await part('several jobs are cancelled together', async (page) => {
  const jobs = [farm.submit(0, 500), farm.submit(0, 500)];
  await page.goto(`${base}/jobs`);
  for (const job of jobs) await page.getByLabel(`Select job ${job.id}`).check();
  await page.getByText('2 jobs selected').waitFor();
  await page.getByRole('button', { name: 'Cancel…' }).click();
  await page.getByRole('heading', { name: 'Cancel 2 jobs?' }).waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  check(
    jobs.every((job) => job.state === 'canceled'),
    'they go on',
  );
});

await part('what the server refuses is told in the dialog', async (page, errors) => {
  await page.goto(`${base}/jobs/${running().id}`);
  await page.getByRole('button', { name: 'Hold…' }).click();
  await page.route('**/hold', (route) =>
    route.fulfill({
      status: 409,
      contentType: 'application/json',
      body: JSON.stringify({ error: { code: 'conflict', message: 'the job has just ended', hint: 'look again' } }),
    }),
  );
  await page.getByRole('dialog').getByRole('button', { name: 'Hold', exact: true }).click();
  await page.getByText('the job has just ended').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  errors.length = 0;
});

for (const [token, own, others] of [
  ['viewer', 0, 0],
  ['ann', 1, 0],
]) {
  await part(
    `${token} sees only the actions of that role`,
    async (page) => {
      const mine = farm.submit(0, 900);
      mine.user = 'ann';
      const foreign = farm.submit(0, 900);
      foreign.user = 'ben';
      for (const [job, wanted] of [
        [mine, own],
        [foreign, others],
      ]) {
        await page.goto(`${base}/jobs/${job.id}`);
        await page.locator('.title .chip').first().waitFor();
        check(
          (await page.getByRole('button', { name: 'Cancel…' }).count()) === wanted,
          `job of ${job.user}: wrong actions`,
        );
      }
      for (const path of ['/queues', '/workers', '/workers/box1', '/jobs']) {
        await page.goto(base + path);
        await page.locator('h1').waitFor();
        await page.waitForTimeout(300);
        check(
          (await page.getByRole('button', { name: /^(Pause|Resume|Weight|Drain)…$/ }).count()) === 0,
          `${path} offers what would be refused`,
        );
      }
      await page.goto(`${base}/scheduler`);
      await page.getByRole('region', { name: 'The scheduler now' }).waitFor();
      check((await page.getByText('Last decisions').count()) === 0, 'decisions are for administrators');
    },
    { token },
  );
}

await part('data that gets old says so, and is read again when the server is back', async (page, errors) => {
  await page.locator('.mark.live').waitFor();
  state.cut = true;
  await page.context().setOffline(true);
  await page.locator('.mark.stale').waitFor();
  await page.getByText('The data is stale').waitFor({ state: 'attached' });
  state.cut = false;
  await page.context().setOffline(false);
  await page.locator('.mark.live').waitFor();
  errors.length = 0;
});

await part('keys lead everywhere', async (page) => {
  await page.keyboard.press('g');
  await page.keyboard.press('j');
  await waitForHeading(page, 'Jobs');
  await page.keyboard.press('/');
  await page.keyboard.type('user=ann r');
  await page.waitForURL(/name=r&user=ann|user=ann&name=r/);
  await page.keyboard.press('Escape');
  await page.waitForFunction(() =>
    [...document.querySelectorAll('[role=grid] [role=rowgroup] a')].every((link) => link.textContent.includes('r')),
  );
  await page.locator('[role=rowgroup] [role=row]').nth(1).waitFor();
  for (const key of ['j', 'j', 'k']) await page.keyboard.press(key);
  await page.keyboard.press('Enter');
  await page.waitForURL(/\/jobs\/\d+/);
  await page.keyboard.press('?');
  await page.getByRole('heading', { name: 'Help' }).waitFor();
  await page.keyboard.press('Escape');
  await page.goBack();
  check((await page.getByLabel('Filter jobs').inputValue()) === 'user=ann r', 'the filter is lost on the way back');
});

await part('cells of tasks are chosen with a pointer and with keys', async (page) => {
  const job = farm.jobs.find((one) => one.name.startsWith('film:'));
  await page.goto(`${base}/jobs/${job.id}`);
  const grid = page.getByRole('slider');
  await grid.waitFor();
  await page.waitForFunction(() => document.querySelector('[role=slider]').getAttribute('aria-valuemax') !== '0');
  await grid.click({ position: { x: 30, y: 5 } });
  await page.waitForURL(/task=2/);
  await grid.press('ArrowRight');
  await page.waitForURL(/task=3/);
  await page.getByRole('heading', { name: `Task ${job.id}.3` }).waitFor();
  await grid.press('End');
  await page.getByRole('row', { name: `${job.states.length - 1} ` }).waitFor();
});

await part('light and dark are remembered', async (page) => {
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await ground();
  await page.getByRole('button', { name: 'Switch to dark' }).click();
  const dark = await ground();
  check(light !== dark, 'nothing changed');
  await page.reload();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  check((await ground()) === dark, 'the choice was forgotten');
});

await part('a table is saved as a file', async (page) => {
  await page.goto(`${base}/history`);
  const [download] = await Promise.all([
    page.waitForEvent('download'),
    page.getByRole('button', { name: 'CSV' }).last().click(),
  ]);
  check(download.suggestedFilename() === 'windlass-expensive-tasks.csv', download.suggestedFilename());
});

await part('nothing moves while a view is loading', async (page) => {
  for (const path of ['/', '/jobs', '/workers', '/queues', '/scheduler', '/history', '/jobs/1', '/workers/box1']) {
    await page.goto(base + path);
    await page.waitForTimeout(1200);
    const shift = await page.evaluate(
      () =>
        new Promise((resolve) => {
          let sum = 0;
          new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) sum += entry.value;
          }).observe({ type: 'layout-shift', buffered: true });
          setTimeout(() => resolve(sum), 100);
        }),
    );
    check(shift < 0.1, `${path} moves: ${shift.toFixed(3)}`);
  }
});

await part('dialogs and help have no serious faults', async (page) => {
  await page.keyboard.press('?');
  await page.getByRole('heading', { name: 'Help' }).waitFor();
  const help = await audit(page);
  await page.keyboard.press('Escape');
  await page.goto(`${base}/queues`);
  await page.getByRole('button', { name: 'Pause…' }).first().click();
  const faults = [...help, ...(await audit(page))];
  check(faults.length === 0, faults.join('\n'));
});

await end();
await stop();
