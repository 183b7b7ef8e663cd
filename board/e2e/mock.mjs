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
const isRunning = (job) => job.state === 'running' && job.counts[3] > 0 && job.states.length < 400;
const running = () => farm.open.find(isRunning);
/** The running job with the fewest tasks that have not ended. */
const nearlyEnded = () =>
  farm.open.filter(isRunning).sort((a, b) => a.counts[1] + a.counts[3] - b.counts[1] - b.counts[3])[0];

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
  const state = await flows.watchToTheEnd(page, base, nearlyEnded().id);
  check(['succeeded', 'failed'].includes(state), `it ended as ${state}`);
});

await part('a log is followed, searched, and shows markup as text', async (page) => {
  // The task that goes on longest: it must still run when its page is there.
  const [job, task] = farm.open
    .filter(isRunning)
    .flatMap((one) => [...one.tasks].map(([index, run]) => [one, index, run.finished_ms === null ? run.until : 0]))
    .reduce((best, one) => (one[2] > best[2] ? one : best));
  const log = await flows.followLog(page, base, job.id, task, '[live 3]');
  check(
    (await page.evaluate(() => document.querySelectorAll('[role=log] img, [role=log] script').length)) === 0,
    'output became markup',
  );
  // Standard error is asked for again and again, and each of its lines is there once.
  check(
    (await log.locator('.stderr', { hasText: 'texture cache is cold' }).count()) === 1,
    'standard error is not once',
  );
  await page.goto(`${base}/jobs/${job.id}?tab=log&task=${task}&stream=stderr`);
  await page.getByRole('log').getByText("<script>document.title = 'broken'</script>").waitFor();
  check(!(await page.title()).includes('broken'), 'output ran');
  await page.goto(`${base}/jobs/1?tab=log&task=0`);
  await log.getByText('tile 3,0 ').first().waitFor();
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

await part('a queue is paused with a note and resumed', async (page) => {
  await flows.pauseQueue(page, base, 'compile', 'the filer is full');
  check(farm.queueOf.get('compile').paused === 'the filer is full', 'the server knows nothing of it');
  await flows.resumeQueue(page, base, 'compile');
  check(farm.queueOf.get('compile').paused === null, 'it stays paused');
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

/** A job that has ended, with failed tasks of several causes. */
const broken = farm.jobs.find((job) => job.state === 'failed' && job.counts[5] > 5);

await part('a failed job says why, and leads to the output that shows it', async (page) => {
  await page.goto(`${base}/jobs/${broken.id}`);
  const why = page.getByRole('region', { name: 'Why it failed' });
  await why.getByText(`${broken.counts[5]} tasks failed`).waitFor();
  await why.getByText(/\d+ × exit code 4/).waitFor();
  await why.getByText('texture cache is cold').waitFor();
  await page.getByRole('row').getByText('exit code 4').first().waitFor();
  await why.getByRole('link', { name: /^and \d+ more$/ }).click();
  await page.waitForURL(/state=failed/);
  check((await page.getByRole('row').getByText('succeeded').count()) === 0, 'others than those that failed are listed');
  await why.getByRole('link', { name: 'output' }).first().click();
  await page.waitForURL(/tab=log/);
  const log = page.getByRole('log');
  // Standard error is at the end, and the end is in view.
  await log.locator('.stderr', { hasText: 'texture cache is cold' }).waitFor();
  check((await page.getByLabel('Follow').count()) === 0, 'an ended task can be followed');
  await page.getByLabel('Times').check();
  await log
    .locator('.time', { hasText: /^\d\d:\d\d:\d\d\.\d$/ })
    .first()
    .waitFor();
  await page.getByLabel('Times').uncheck();
  const last = log.getByRole('link', { name: /^Line \d+, standard error$/ }).last();
  const number = await last.innerText();
  await last.click();
  check(page.url().endsWith(`#L${number}`), `the address is ${page.url()}`);
  await page.getByRole('button', { name: /^stdout/ }).click();
  await page.getByText('902 lines').waitFor();
  check((await log.locator('.stderr').count()) === 0, 'standard error stays');
  await page.goto(`${base}/jobs/${broken.id}?tab=log&task=0#L7`);
  await log.locator('.current', { hasText: '[00005]' }).waitFor();
});

await part('a task that never started says so where its output would be', async (page) => {
  const index = broken.states.findIndex((code, i) => code === 5 && i % 13 === 5 && i % 11 !== 4);
  if (index < 0) return;
  await page.goto(`${base}/jobs/${broken.id}?tab=log&task=${index}`);
  await page.getByText('cannot enter the working directory').first().waitFor();
});

await part('a job that is not there leads to those that are', async (page, errors) => {
  await page.goto(`${base}/jobs/999999`);
  await page.getByRole('link', { name: 'See all jobs' }).click();
  await waitForHeading(page, 'Jobs');
  errors.length = 0;
});

await part('one task is cancelled and retried', async (page) => {
  const job = farm.submit(0, 400);
  await page.goto(`${base}/jobs/${job.id}?task=399`);
  const panel = page.getByRole('complementary', { name: `Task ${job.id}.399` });
  await panel.getByRole('button', { name: 'Cancel…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel', exact: true }).click();
  await panel.getByRole('button', { name: 'Retry…' }).click();
  check(job.states[399] === 6 && job.counts[6] === 1, 'the server knows nothing of it, or more tasks are cancelled');
  await page.getByRole('dialog').getByRole('button', { name: 'Retry', exact: true }).click();
  await panel.getByRole('button', { name: 'Cancel…' }).waitFor();
});

await part('keys act on the row, although a button had the focus', async (page) => {
  const [older, newer] = [farm.submit(0, 700), farm.submit(0, 700)];
  for (const job of [older, newer]) farm.act(job, 'hold');
  await page.goto(`${base}/jobs?state=held`);
  await page.getByRole('link', { name: newer.name, exact: true }).first().waitFor();
  await page.getByRole('button', { name: /failed/ }).focus();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  await page.keyboard.press('c');
  await page.getByRole('heading', { name: `Cancel job ${older.id} (${older.name})?` }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await page.keyboard.press('Enter');
  await page.waitForURL(new RegExp(`/jobs/${older.id}$`));
  await page.getByRole('button', { name: 'Release…' }).waitFor();
  await page.keyboard.press('t');
  await page.getByText(`Job ${older.id} is held: nothing to retry`).waitFor();
  await page.keyboard.press('p');
  await page.getByRole('heading', { name: /^Set the priority of job/ }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'hidden' });
  await page.keyboard.press('w');
  await page.waitForURL(/why/);
  for (const job of [older, newer]) farm.act(job, 'cancel');
});

await part('a bulk action says for how many it counts', async (page) => {
  const good = farm.jobs.findLast((job) => job.state === 'succeeded');
  await page.goto(`${base}/jobs`);
  await page.getByLabel(`Select job ${good.id}`).check();
  await page.getByText('nothing to do').waitFor();
  const bad = farm.submit(0, 30);
  farm.act(bad, 'cancel');
  await page.getByLabel(`Select job ${bad.id}`).check();
  await page.getByRole('button', { name: 'Retry (1 of 2)…' }).click();
  await page.getByRole('heading', { name: `Retry job ${bad.id}` }).waitFor();
});

await part(
  'a phone drains a worker, pauses a queue and cancels a job by the menus of their rows',
  async (page) => {
    await page.goto(`${base}/workers`);
    await page.getByRole('button', { name: 'Actions of worker box3' }).click();
    await page.getByRole('button', { name: 'Drain…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Drain', exact: true }).click();
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    check(farm.byName.get('box3').draining, 'the server knows nothing of it');
    farm.drain(farm.byName.get('box3'), false, null);
    await page.goto(`${base}/queues`);
    await page.getByRole('button', { name: 'Actions of queue vip' }).click();
    await page.getByRole('button', { name: 'Pause…' }).waitFor();
    const faults = await audit(page);
    check(faults.length === 0, faults.join('\n'));
    await page.getByRole('button', { name: 'Close' }).click();
    const job = farm.submit(0, 300);
    await page.goto(`${base}/jobs`);
    await page.getByRole('button', { name: `Actions of job ${job.id}` }).click();
    await page.getByRole('button', { name: 'Cancel…' }).click();
    await page.getByRole('dialog').getByRole('button', { name: 'Cancel', exact: true }).click();
    await page.getByRole('dialog').waitFor({ state: 'hidden' });
    check(job.state === 'canceled', 'it goes on');
  },
  { size: 'phone' },
);

await part(
  'a phone gives the log the screen, to its last line',
  async (page) => {
    await page.goto(`${base}/jobs/${broken.id}?tab=log`);
    const log = page.getByRole('log');
    await log.locator('.stderr', { hasText: 'texture cache is cold' }).waitFor();
    const { y, height } = await log.boundingBox();
    check(y < 400, `the log begins at ${y}`);
    check(y + height < page.viewportSize().height, `the log ends at ${y + height}`);
    await page.getByRole('button', { name: 'More of the output' }).click();
    await page.getByRole('button', { name: 'Show times' }).click();
    await page.waitForURL(/times=1/);
    const [download] = await Promise.all([
      page.waitForEvent('download'),
      page
        .getByRole('button', { name: 'More of the output' })
        .click()
        .then(() => page.getByRole('button', { name: 'Download stderr' }).click()),
    ]);
    check(download.suggestedFilename() === `task-${broken.id}.0-stderr.log`, download.suggestedFilename());
  },
  { size: 'phone' },
);

await part('free cpus out of service are told apart, and lead to the workers that they are on', async (page) => {
  await page.getByRole('img', { name: /^Cpus: .* usable, [1-9]\d* out of service$/ }).waitFor();
  await page.getByRole('link', { name: /^Suffering/ }).click();
  await waitForHeading(page, 'Workers');
  const rows = page.locator('[role=rowgroup] [role=row]');
  await rows.first().waitFor();
  check((await rows.count()) === 2, `${await rows.count()} workers are troubled`);
  await page.getByLabel('only troubled').uncheck();
  await page.getByText('14 workers').waitFor();
  check((await rows.first().innerText()).includes('not heard from'), 'a troubled worker does not stand first');
});

await part('the settings of a queue are edited on its page', async (page) => {
  await flows.editQueue(page, base, 'nightly', {
    'Weight, 1 to 10000': 80,
    'Quota in cpus': '',
    'Users who may': 'ann, ben',
    'Jobservers of tasks': 'on',
  });
  const queue = farm.queueOf.get('nightly');
  check(queue.weight === 80 && queue.quota_cpus === null, 'the server knows nothing of it');
  check(queue.jobserver === true, 'the server knows nothing of its jobservers');
  check(queue.users.join() === 'ann,ben' && queue.burst_cpus === 128, 'users, or what was not changed');
  await page.getByText('ann, ben').waitFor();
  await page.getByText('all tasks have one, unless').waitFor();
});

await part('a build tells how many processes it runs, and what holds it back', async (page) => {
  // The queue of the highest band is served first.
  const job = Object.assign(farm.submit(0, 60), { queue: 'vip', name: 'builds' });
  job.steps[0].jobserver = 'auto';
  await page.goto(`${base}/jobs/${job.id}?state=running`);
  await page.getByText('6 of 6', { exact: true }).first().click();
  await page.getByText('runs 6 of 6').getByText('wants more').waitFor();
  farm.act(job, 'cancel');
});

await part('limits tell who holds them, and are edited', async (page) => {
  // The queue of the highest band is served first.
  const job = Object.assign(farm.submit(0, 600), { queue: 'vip', name: 'holds maya' });
  job.steps[0].limits = ['maya'];
  await page.goto(`${base}/limits`);
  const held = page.getByRole('row').filter({ hasText: 'maya' });
  await held.getByRole('link', { name: 'holds maya' }).waitFor();
  farm.act(job, 'cancel');
  const row = page.getByRole('row').filter({ hasText: 'nuke' });
  await row.getByRole('button', { name: 'Edit…' }).click();
  await page.getByLabel('Tasks that may hold it').fill('12');
  await page.getByRole('dialog').getByRole('button', { name: 'Save', exact: true }).click();
  await row.getByText('/12').waitFor();
});

await part('a token is revoked', async (page) => {
  await page.goto(base);
  await page.getByRole('link', { name: 'admin', exact: true }).click();
  await waitForHeading(page, 'Tokens');
  const row = page.getByRole('row').filter({ hasText: 'laptop' });
  await row.getByRole('button', { name: 'Revoke…' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Revoke', exact: true }).click();
  await row.getByText('revoked').waitFor();
  check(farm.tokens.find((token) => token.note === 'laptop').revoked_ms > 0, 'the server knows nothing of it');
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
      for (const path of ['/queues', '/queues/film', '/limits', '/workers', '/workers/box1', '/jobs']) {
        await page.goto(base + path);
        await page.locator('h1').waitFor();
        await page.waitForTimeout(300);
        check(
          (await page.getByRole('button', { name: /^(Pause|Resume|Drain|Edit|Add)…$/ }).count()) === 0,
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
  const usage = page.getByRole('region', { name: 'Usage' });
  await usage.getByRole('button', { name: 'Days' }).click();
  await usage.getByRole('rowheader').first().waitFor();
  const [file] = await Promise.all([page.waitForEvent('download'), usage.getByRole('button', { name: 'CSV' }).click()]);
  check(file.suggestedFilename() === 'windlass-usage.csv', file.suggestedFilename());
});

await part('nothing moves while a view is loading', async (page) => {
  for (const path of [
    '/',
    '/jobs',
    '/workers',
    '/queues',
    '/queues/film',
    '/limits',
    '/scheduler',
    '/history',
    '/jobs/1',
    '/workers/box1',
  ]) {
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
