// The board of a running OpenCue gateway, in Chromium. It reads:
//   BASE     address of the board, such as http://127.0.0.1:8448
//   TOKEN    its token; without one the board must ask for none
//   JOB      the key of a job, and JOB_NAME its name; LAYER the name of a layer of it, and FRAME of one of its frames
//   FRAMES   the number of frames that will run, which the overview must come to show without being loaded again
//   HOST     the name of a host; SHOW the name of the job's show
//   SHOTS    a directory for pictures of every view, light and dark
// It ends with status 1 if something differs, or if a page showed an error or a serious fault of accessibility.

import { signIn, waitForHeading, withoutReload } from './browser.mjs';
import * as flows from './flows.mjs';
import { openParts } from './parts.mjs';

const base = (process.env.BASE ?? '').replace(/\/$/, '');
const { TOKEN: token, JOB: job, JOB_NAME: jobName, LAYER: layer, FRAME: frame, FRAMES: frames } = process.env;
const { HOST: host, SHOW: show } = process.env;
for (const [name, value] of Object.entries({ base, job, jobName, layer, frame, frames, host, show })) {
  if (!value) throw new Error(`${name} is missing; the head of this file lists what is read`);
}

const { part, lookAtAll, end } = await openParts({
  enter: (page) => (token ? signIn(page, base, token) : undefined),
});

await part('the overview follows the farm without being loaded again', async (page) => {
  await page.goto(`${base}/`);
  await waitForHeading(page, 'Overview');
  const figure = page.getByRole('region', { name: 'The farm now' }).locator('.figure', { hasText: 'Frames running' });
  const expected = new Intl.NumberFormat('en-GB').format(Number(frames));
  await withoutReload(page, () => figure.getByText(expected, { exact: true }).waitFor());
  await page.locator('.mark.live').first().waitFor();
});

await part('links lead from the show over the job to why a frame is where it is', async (page) => {
  await page.goto(`${base}/`);
  await flows.open(page, 'Shows');
  await page.getByRole('grid', { name: 'Shows' }).getByRole('link', { name: show, exact: true }).click();
  await waitForHeading(page, 'Jobs');
  await page.getByRole('grid', { name: 'Jobs' }).getByRole('link', { name: jobName, exact: true }).click();
  await waitForHeading(page, `Job ${jobName}`);
  await page.getByRole('link', { name: layer, exact: true }).first().click();
  const list = page.getByRole('grid', { name: 'Frames' });
  await list.getByText(frame, { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Next page' }).click();
  await page.getByRole('link', { name: 'First page' }).click();
  await list.getByRole('link', { name: `Why ${frame}`, exact: true }).click();
  await waitForHeading(page, new RegExp(`Why ${frame}`));
  await page.getByRole('list', { name: `Reasons of ${layer}` }).getByText(`frame ${frame}`, { exact: false }).waitFor();
});

await part('a filter and a state narrow the lists', async (page) => {
  await page.goto(`${base}/workers`);
  await waitForHeading(page, 'Hosts');
  await page.getByLabel('Filter hosts by name').fill(host);
  await page.getByRole('grid', { name: 'Hosts' }).getByRole('link', { name: host, exact: true }).click();
  await waitForHeading(page, host);
  await page.getByRole('region', { name: 'The host now' }).waitFor();
  await page.goto(`${base}/jobs?state=finished`);
  await page.getByText('No job matches the filter.').waitFor();
});

await part('a job that is not there is said to be missing', async (page, errors) => {
  await page.goto(`${base}/jobs/none`);
  await page.getByRole('alert').first().getByText("there is no job 'none'", { exact: false }).waitFor();
  // The browser reports each refusal as an error of the page.
  errors.length = 0;
});

const views = {
  overview: '/',
  shows: '/queues',
  jobs: '/jobs',
  job: `/jobs/${job}?layer=${encodeURIComponent(layer)}`,
  why: `/jobs/${job}/why?part=${encodeURIComponent(frame)}`,
  hosts: '/workers',
  host: `/workers/${encodeURIComponent(host)}`,
};
await lookAtAll(base, views, 'opencue-');
await end();
