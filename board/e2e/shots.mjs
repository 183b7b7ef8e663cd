// Pictures of every view, light and dark, at three widths: SHOTS=shots node e2e/shots.mjs [view ...]
// BASE and TOKEN take them from a running server; else from a made-up farm.

import { audit, launch, openPage, shot, signIn } from './browser.mjs';
import { serve } from '../mock/server.mjs';

const only = process.argv.slice(2);
const sizes = (process.env.SIZES ?? 'phone,desk,wide').split(',');
const mock = process.env.BASE ? undefined : await serve({ mode: process.env.MODE ?? 'small' });
const base = process.env.BASE ?? mock.address;
const film = process.env.JOB ?? mock?.farm.jobs.find((job) => job.name.startsWith('film:')).id;
const waiting = process.env.WAITING ?? `${mock?.farm.jobs.find((job) => job.impossible).id}`;
const VIEWS = {
  overview: '/',
  jobs: '/jobs',
  job: `/jobs/${film}?task=3`,
  timeline: `/jobs/${film}?tab=timeline`,
  steps: `/jobs/${film}?tab=steps`,
  log: `/jobs/${film}?tab=log&task=3`,
  details: `/jobs/${film}?tab=details`,
  why: `/jobs/${film}/why?task=3`,
  why2: `/jobs/${waiting}/why`,
  workers: '/workers',
  worker: `/workers/${process.env.WORKER ?? mock?.farm.workers[0].name}`,
  queues: '/queues',
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
for (const dark of [false, true]) {
  for (const size of sizes) {
    const { page, context, errors } = await openPage(browser, { size, dark });
    if (only.length === 0 || only.includes('signin')) {
      await page.goto(base);
      await page.getByLabel('Token').waitFor();
      await shot(page, `signin-${size}-${dark ? 'dark' : 'light'}`);
      errors.length = 0;
    }
    await signIn(page, base, process.env.TOKEN ?? 'admin');
    errors.length = 0;
    for (const [name, path] of Object.entries(VIEWS)) {
      if (only.length > 0 && !only.includes(name)) continue;
      await page.goto(base + path);
      await page.locator('h1').first().waitFor();
      await page.waitForTimeout(1500);
      await shot(page, `${name}-${size}-${dark ? 'dark' : 'light'}`);
      for (const error of errors.splice(0)) {
        faults += 1;
        console.log(`${name} ${size} ${dark ? 'dark' : 'light'} error: ${error}`);
      }
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (wide > 0) console.log(`${name} ${size}: ${wide} px too wide`);
      for (const fault of await audit(page)) {
        faults += 1;
        console.log(`${name} ${size} ${dark ? 'dark' : 'light'} axe ${fault}`);
      }
    }
    for (const error of errors) console.log(`${size} ${dark ? 'dark' : 'light'} error: ${error}`);
    faults += errors.length;
    await context.close();
  }
}
await browser.close();
await mock?.stop();
console.log(faults === 0 ? 'no faults' : `${faults} faults`);
