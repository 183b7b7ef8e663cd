// What the board costs with 10,000 workers and a job of 1,000,000 tasks: sizes, first paint, memory, scrolling, events.
// BASE, TOKEN and JOB take them from a running server; else from the made-up big farm.

import { readFileSync, readdirSync } from 'node:fs';
import { gzipSync } from 'node:zlib';
import { launch, openPage, signIn } from './browser.mjs';
import { serve } from '../mock/server.mjs';

const mock = process.env.BASE ? undefined : await serve({ mode: 'big' });
const base = process.env.BASE ?? mock.address;
const job = process.env.JOB ?? mock.farm.jobs.find((one) => one.states.length === 1_000_000).id;
const dist = new URL('../dist/assets/', import.meta.url);
const report = (name, value) => console.log(`${name.padEnd(52)} ${value}`);

for (const name of readdirSync(dist))
  report(
    `gzip -9 ${name}`,
    `${(gzipSync(readFileSync(new URL(name, dist)), { level: 9 }).length / 1000).toFixed(1)} kB`,
  );

const browser = await launch(['--enable-precise-memory-info', '--js-flags=--expose-gc']);
const { page, context, errors } = await openPage(browser);
await signIn(page, base, process.env.TOKEN ?? 'admin');
const cdp = await context.newCDPSession(page);
await cdp.send('Performance.enable');

/** Bytes that the page's scripts and documents hold, after the rubbish was collected. */
async function memory() {
  await cdp.send('HeapProfiler.collectGarbage');
  const heap = await cdp.send('Runtime.getHeapUsage');
  const { metrics } = await cdp.send('Performance.getMetrics');
  const value = (name) => metrics.find((one) => one.name === name)?.value ?? 0;
  return {
    heap: heap.usedSize,
    outside: (heap.backingStorageSize ?? 0) + (heap.embedderHeapUsedSize ?? 0),
    nodes: value('Nodes'),
  };
}
async function tell(name) {
  const { heap, outside, nodes } = await memory();
  const system = await resident();
  report(
    `memory, ${name}`,
    `${(heap / 1e6).toFixed(1)} MB of scripts, ${(outside / 1e6).toFixed(1)} MB buffers and elements, ${nodes} nodes, ${system}`,
  );
}
/** The process of the page as the system sees it, private memory. */
async function resident() {
  const { processInfo } = await (await browser.newBrowserCDPSession()).send('SystemInfo.getProcessInfo');
  const sizes = processInfo
    .filter((one) => one.type === 'renderer')
    .map((one) => {
      const text = readFileSync(`/proc/${one.id}/smaps_rollup`, 'utf8');
      return [...text.matchAll(/^Private_(?:Clean|Dirty):\s+(\d+)/gm)].reduce(
        (sum, match) => sum + Number(match[1]),
        0,
      );
    });
  return `${(Math.max(...sizes) / 1024).toFixed(0)} MiB private`;
}

/** Scrolls through a list for some seconds, and measures the time from frame to frame. */
async function scroll(selector, name) {
  const frames = await page.evaluate(async (which) => {
    const box = document.querySelector(which);
    const times = [];
    let last = performance.now();
    const end = last + 4000;
    await new Promise((resolve) => {
      const step = (now) => {
        times.push(now - last);
        last = now;
        box.scrollTop += 90;
        if (now < end) requestAnimationFrame(step);
        else resolve();
      };
      requestAnimationFrame(step);
    });
    return times.slice(1);
  }, selector);
  frames.sort((a, b) => a - b);
  const at = (part) => frames[Math.min(frames.length - 1, Math.floor(frames.length * part))].toFixed(1);
  report(
    `scrolling, ${name}`,
    `${frames.length} frames in 4 s; median ${at(0.5)} ms, 95% ${at(0.95)} ms, worst ${at(1)} ms`,
  );
}

async function paint(path, name) {
  await page.goto(base + path);
  await page.locator('h1').waitFor();
  const first = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime);
  const began = Date.now();
  await page
    .waitForFunction(() => document.querySelector('.word')?.textContent === 'live', null, { timeout: 20_000 })
    .catch(() => {});
  report(
    `paint, ${name}`,
    `first ${first?.toFixed(0)} ms, data live ${(Date.now() - began + (first ?? 0)).toFixed(0)} ms at the latest`,
  );
}

await paint('/', 'overview');
await tell('overview');
await paint('/workers', 'workers');
await page.waitForTimeout(4000);
await scroll('[role=grid]', 'workers');
await tell('workers');
await paint('/jobs', 'jobs');
await scroll('[role=grid]', 'jobs');
await tell('jobs');
await paint(`/jobs/${job}`, 'job');
await page.waitForTimeout(4000);
await scroll('[role=grid]', 'tasks of the job');
await tell('job');
await page.getByRole('button', { name: 'Large' }).click();
await scroll('[role=slider]', 'cells of the job');
// One page that went through all views without being loaded again.
for (const view of ['Overview', 'Workers', 'Queues', 'Scheduler', 'History', 'Jobs']) {
  await page.getByRole('navigation').getByRole('link', { name: view }).click();
  await page.waitForTimeout(1500);
}
await tell('after all views');

for (const [name, path] of [
  ['of all jobs, brief', '/api/v1/events?brief=true'],
  ['of all jobs, whole', '/api/v1/events'],
  ['of one job', `/api/v1/events?job=${job}`],
]) {
  const bytes = await page.evaluate(async (at) => {
    const abort = new AbortController();
    const reader = (await fetch(at, { signal: abort.signal })).body.getReader();
    let sum = 0;
    const end = performance.now() + 5000;
    const timer = setTimeout(() => abort.abort(), 5000);
    try {
      while (performance.now() < end) sum += (await reader.read()).value?.length ?? 0;
    } catch {
      /* the time is over */
    }
    clearTimeout(timer);
    return sum;
  }, path);
  report(`events, ${name}`, `${(bytes / 5000).toFixed(0)} kB/s`);
}
for (const error of errors) console.log(`error: ${error}`);
await browser.close();
await mock?.stop();
