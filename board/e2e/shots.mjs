// Pictures of every view, light and dark, at three widths: SHOTS=shots node e2e/shots.mjs [view ...]
// BASE and TOKEN take them from a running server; else from a made-up farm.

import { launch, lookAt, openPage, shot, signIn } from './browser.mjs';
import { serve } from '../mock/server.mjs';

const only = process.argv.slice(2);
const sizes = (process.env.SIZES ?? 'phone,desk,wide').split(',');
const mock = process.env.BASE ? undefined : await serve({ mode: process.env.MODE ?? 'small' });
const base = process.env.BASE ?? mock.address;
const film = process.env.JOB ?? mock?.farm.jobs.find((job) => job.name.startsWith('film:')).id;
const waiting = process.env.WAITING ?? `${mock?.farm.jobs.find((job) => job.impossible).id}`;
const failed =
  process.env.FAILED ?? mock?.farm.jobs.find((job) => job.state === 'failed' && job.counts[5] > 5)?.id ?? film;
const single = mock?.farm.jobs.find((job) => job.state === 'failed' && job.states.length === 1)?.id ?? failed;
const VIEWS = {
  overview: '/',
  jobs: '/jobs',
  job: `/jobs/${film}?task=3`,
  timeline: `/jobs/${film}?tab=timeline`,
  failed: `/jobs/${failed}`,
  'failed-task': `/jobs/${failed}?state=failed&task=0`,
  'failed-log': `/jobs/${failed}?tab=log`,
  'failed-why': `/jobs/${failed}/why`,
  single: `/jobs/${single}`,
  steps: `/jobs/${film}?tab=steps`,
  log: `/jobs/${film}?tab=log&task=3`,
  details: `/jobs/${film}?tab=details`,
  why: `/jobs/${film}/why?task=3`,
  why2: `/jobs/${waiting}/why`,
  workers: '/workers',
  worker: `/workers/${process.env.WORKER ?? mock?.farm.workers[0].name}`,
  queues: '/queues',
  queue: `/queues/${process.env.QUEUE ?? 'film'}`,
  limits: '/limits',
  tokens: '/tokens',
  scheduler: '/scheduler',
  history: '/history',
};

process.env.SHOTS ??= 'shots';
const browser = await launch();
let faults = 0;
if (mock)
  await new Promise((resolve) => {
    setTimeout(resolve, Number(process.env.WARM ?? 15_000));
  });
for (const theme of ['light', 'dark']) {
  for (const size of sizes) {
    const { page, context, errors } = await openPage(browser, { size, dark: theme === 'dark' });
    if (only.length === 0 || only.includes('signin')) {
      await page.goto(base);
      await page.getByLabel('Token').waitFor();
      await shot(page, `signin-${size}-${theme}`);
      errors.length = 0;
    }
    await signIn(page, base, process.env.TOKEN ?? 'admin');
    errors.length = 0;
    for (const [name, path] of Object.entries(VIEWS)) {
      if (only.length > 0 && !only.includes(name)) continue;
      const found = await lookAt(page, base + path, `${name}-${size}-${theme}`, 1_500);
      found.push(...errors.splice(0).map((error) => `error of the page: ${error}`));
      for (const fault of found) console.log(`${name}, ${size}, ${theme}: ${fault}`);
      faults += found.length;
    }
    await context.close();
  }
}
await browser.close();
await mock?.stop();
console.log(faults === 0 ? 'no faults' : `${faults} faults`);
