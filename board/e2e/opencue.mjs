// The board of a running OpenCue gateway, in Chromium. It reads:
//   BASE     address of the board, such as http://127.0.0.1:8448
//   TOKEN    its token; without one the board must ask for none
//   JOB      the key of a job, and JOB_NAME its name; LAYER the name of a layer of it, and FRAME of one of its frames
//   FRAMES   the number of frames that will run, which the overview must come to show without being loaded again
//   HOST     the name of a host; SHOW the name of the job's show
//   SHOTS    a directory for pictures of every view, light and dark
// It ends with status 1 if something differs, or if a page showed an error or a serious fault of accessibility.

import { audit, check, launch, openPage, shot, signIn } from './browser.mjs';

const base = (process.env.BASE ?? '').replace(/\/$/, '');
const { TOKEN: token, JOB: job, JOB_NAME: jobName, LAYER: layer, FRAME: frame, FRAMES: frames } = process.env;
const { HOST: host, SHOW: show } = process.env;
for (const [name, value] of Object.entries({ base, job, jobName, layer, frame, frames, host, show })) {
  if (!value) throw new Error(`${name} is missing; the head of this file lists what is read`);
}
/** Bound of waits that only a fault reaches. */
const PATIENCE_MS = 60_000;
let failed = 0;
const browser = await launch();

async function part(name, run, { expectsErrors = false, ...options } = {}) {
  const { page, context, errors } = await openPage(browser, options);
  page.setDefaultTimeout(PATIENCE_MS);
  try {
    if (token) await signIn(page, base, token);
    errors.length = 0;
    await run(page);
    check(expectsErrors || errors.length === 0, `errors on the page: ${errors.join('; ')}`);
    console.log(`ok     ${name}`);
  } catch (error) {
    failed += 1;
    console.log(
      `FAILED ${name}\n       ${String(error.message ?? error)
        .split('\n')
        .slice(0, 8)
        .join('\n       ')}`,
    );
    await shot(page, `failed-${name.replaceAll(/[^a-z]+/gi, '-')}`).catch(() => {});
  } finally {
    await context.close();
  }
}

const heading = (page, name) => page.getByRole('heading', { name, level: 1 }).waitFor();

await part('the overview follows the farm without being loaded again', async (page) => {
  await page.goto(`${base}/`);
  await heading(page, 'Overview');
  await page.evaluate(() => {
    window.sameDocument = true;
  });
  const figure = page.getByRole('region', { name: 'The farm now' }).locator('.figure', { hasText: 'Frames running' });
  const expected = new Intl.NumberFormat('en-GB').format(Number(frames));
  await figure.getByText(expected, { exact: true }).waitFor();
  check(await page.evaluate(() => window.sameDocument === true), 'the page was loaded again');
  await page.locator('.mark.live').first().waitFor();
});

await part('links lead from the show over the job to why a frame is where it is', async (page) => {
  await page.goto(`${base}/`);
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: 'Shows' }).click();
  await heading(page, 'Shows');
  await page.getByRole('grid', { name: 'Shows' }).getByRole('link', { name: show, exact: true }).click();
  await heading(page, 'Jobs');
  await page.getByRole('grid', { name: 'Jobs' }).getByRole('link', { name: jobName, exact: true }).click();
  await heading(page, `Job ${jobName}`);
  await page.getByRole('link', { name: layer, exact: true }).first().click();
  const list = page.getByRole('grid', { name: 'Frames' });
  await list.getByText(frame, { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Next page' }).click();
  await page.getByRole('link', { name: 'First page' }).click();
  await list.getByRole('link', { name: `Why ${frame}`, exact: true }).click();
  await heading(page, new RegExp(`Why ${frame}`));
  await page.getByRole('list', { name: `Reasons of ${layer}` }).getByText(`frame ${frame}`, { exact: false }).waitFor();
});

await part('a filter and a state narrow the lists', async (page) => {
  await page.goto(`${base}/workers`);
  await heading(page, 'Hosts');
  await page.getByLabel('Filter hosts by name').fill(host);
  await page.getByRole('grid', { name: 'Hosts' }).getByRole('link', { name: host, exact: true }).click();
  await heading(page, host);
  await page.getByRole('region', { name: 'The host now' }).waitFor();
  await page.goto(`${base}/jobs?state=finished`);
  await page.getByText('No job matches the filter.').waitFor();
});

// The browser reports each refusal as an error of the page.
await part(
  'a job that is not there is said to be missing',
  async (page) => {
    await page.goto(`${base}/jobs/none`);
    await page.getByRole('alert').first().getByText("there is no job 'none'", { exact: false }).waitFor();
  },
  { expectsErrors: true },
);

const views = {
  overview: '/',
  shows: '/queues',
  jobs: '/jobs',
  job: `/jobs/${job}?layer=${encodeURIComponent(layer)}`,
  why: `/jobs/${job}/why?part=${encodeURIComponent(frame)}`,
  hosts: '/workers',
  host: `/workers/${encodeURIComponent(host)}`,
};
for (const dark of [false, true]) {
  for (const size of ['phone', 'desk', 'wide']) {
    await part(
      `all views, ${size}, ${dark ? 'dark' : 'light'}`,
      async (page) => {
        const faults = [];
        for (const [name, path] of Object.entries(views)) {
          await page.goto(base + path);
          await page.locator('h1').first().waitFor();
          await page.waitForTimeout(1000);
          await shot(page, `opencue-${name}-${size}-${dark ? 'dark' : 'light'}`);
          faults.push(...(await audit(page)).map((fault) => `${name}: ${fault}`));
          const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
          if (wide > 0) faults.push(`${name}: ${wide} px too wide`);
        }
        check(faults.length === 0, faults.join('\n'));
      },
      { size, dark },
    );
  }
}

await browser.close();
console.log(failed === 0 ? 'all passed' : `${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;
