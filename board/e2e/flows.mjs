// What a person does on the board, step by step. Each returns when the page shows that it was done, without reloading.

import { waitForHeading, withoutReload } from './browser.mjs';

/** Opens a view by its link in the header. */
export async function open(page, view) {
  await page.getByRole('navigation', { name: 'Views' }).getByRole('link', { name: view }).click();
  await waitForHeading(page, view);
}

/** Watches a job until it has ended; fails if the page was loaded again meanwhile. Returns its last state. */
export async function watchToTheEnd(page, base, job) {
  await page.goto(`${base}/jobs/${job}`);
  await page.getByRole('heading', { level: 1 }).waitFor();
  await withoutReload(page, () =>
    page.waitForFunction(() =>
      /succeeded|failed|cancelled/.test(document.querySelector('.title .chip')?.textContent ?? ''),
    ),
  );
  return (await page.locator('.title .chip').first().innerText()).trim().split(/\s+/).pop();
}

/** Follows the log of a task until a text appears in it. */
export async function followLog(page, base, job, task, text) {
  await page.goto(`${base}/jobs/${job}?tab=log&task=${task}`);
  const log = page.getByRole('log');
  await log.getByText(text, { exact: false }).first().waitFor();
  return log;
}

/** Reads why a task is where it is: the word and the sentence. */
export async function readReason(page, base, job, task = null) {
  await page.goto(`${base}/jobs/${job}/why${task === null ? '' : `?task=${task}`}`);
  const answer = page.getByRole('region', { name: 'The reason' });
  await answer.locator('.headline').waitFor();
  return {
    word: await answer.getAttribute('data-reason'),
    text: (await answer.innerText()).trim(),
    changes: await page.locator('.changes li').allInnerTexts(),
  };
}

/** Waits until the reason that is shown is this word, without reloading. */
export async function waitForReason(page, words) {
  await page.waitForFunction((wanted) => wanted.includes(document.querySelector('.answer')?.dataset.reason), words);
}

async function confirm(page, verb, value) {
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  if (value !== undefined)
    await dialog.getByRole(typeof value === 'number' ? 'spinbutton' : 'textbox').fill(String(value));
  await dialog.getByRole('button', { name: verb, exact: true }).click();
  await dialog.waitFor({ state: 'hidden' });
}

/** Drains a worker on its page. */
export async function drainWorker(page, base, worker, note) {
  await page.goto(`${base}/workers/${encodeURIComponent(worker)}`);
  await page.getByRole('button', { name: 'Drain…' }).click();
  await confirm(page, 'Drain', note);
  await page.locator('.title .chip', { hasText: 'draining' }).waitFor();
}

/** Lets it take work again. */
export async function resumeWorker(page) {
  await page.getByRole('button', { name: 'Resume…' }).click();
  await confirm(page, 'Resume');
  await page.locator('.title .chip', { hasText: 'up' }).waitFor();
}

const queueRow = (page, queue) =>
  page.getByRole('row').filter({ has: page.getByRole('link', { name: queue, exact: true }) });

/** Pauses a queue with a note. */
export async function pauseQueue(page, base, queue, note) {
  await page.goto(`${base}/queues`);
  await queueRow(page, queue).getByRole('button', { name: 'Pause…' }).click();
  await confirm(page, 'Pause', note);
  await queueRow(page, queue).getByText(note).waitFor();
}

export async function resumeQueue(page, base, queue) {
  await page.goto(`${base}/queues`);
  await queueRow(page, queue).getByRole('button', { name: 'Resume…' }).click();
  await confirm(page, 'Resume');
  await queueRow(page, queue).getByRole('button', { name: 'Pause…' }).waitFor();
}

/** Changes settings of a queue on its page: values by the label of their field. */
export async function editQueue(page, base, queue, values) {
  await page.goto(`${base}/queues/${encodeURIComponent(queue)}`);
  await page.getByRole('button', { name: 'Edit…' }).click();
  const dialog = page.getByRole('dialog');
  await dialog.waitFor();
  for (const [label, value] of Object.entries(values)) {
    const field = dialog.getByLabel(label);
    if ((await field.evaluate((element) => element.tagName)) === 'SELECT') await field.selectOption(value);
    else await field.fill(String(value));
  }
  await dialog.getByRole('button', { name: 'Save', exact: true }).click();
  await dialog.waitFor({ state: 'hidden' });
}

/** Does an action of a job on its page, and waits for the state it leads to. */
export async function actOnJob(page, base, job, action, state, value) {
  await page.goto(`${base}/jobs/${job}`);
  await page.getByRole('button', { name: `${action}…` }).click();
  await confirm(page, action === 'Priority' ? 'Set' : action, value);
  if (state) await page.locator('.title .chip', { hasText: state }).first().waitFor();
}
