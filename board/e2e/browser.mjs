// What all tests in a browser share: Chromium, pages whose errors are collected, axe, pictures.

import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
export const SIZES = { phone: [400, 860], desk: [1280, 860], wide: [3840, 2160] };
/** Bound of waits that only a fault reaches. */
const PATIENCE_MS = 60_000;

/** Opens Debian's Chromium, or the one that CHROMIUM names. */
export function launch(args = []) {
  return chromium.launch({
    executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium',
    args: ['--no-sandbox', '--disable-dev-shm-usage', ...args],
  });
}

/** A page that remembers what went wrong on it: errors of scripts, of the policy and of requests. */
export async function openPage(browser, { size = 'desk', dark = false, ...options } = {}) {
  const [width, height] = SIZES[size];
  const context = await browser.newContext({
    viewport: { width, height },
    colorScheme: dark ? 'dark' : 'light',
    reducedMotion: 'reduce',
    ...options,
  });
  context.setDefaultTimeout(PATIENCE_MS);
  const page = await context.newPage();
  const errors = [];
  page.on('console', (message) => {
    if (message.type() === 'error') errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(String(error)));
  return { page, context, errors };
}

/** Signs in on the page of the board. */
export async function signIn(page, base, token) {
  await page.goto(`${base}/`);
  await page.getByLabel('Token').fill(token);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await waitForHeading(page, 'Overview');
}

/** Waits for a view by its heading. */
export async function waitForHeading(page, name) {
  await page.getByRole('heading', { name, level: 1 }).waitFor();
}

/** Runs steps on the page; fails if it was loaded again meanwhile. */
export async function withoutReload(page, steps) {
  await page.evaluate(() => {
    window.sameDocument = true;
  });
  await steps();
  check(await page.evaluate(() => window.sameDocument === true), 'the page was loaded again');
}

/** Opens a view, keeps a picture of it, and returns its serious faults, as lines. */
export async function lookAt(page, address, picture, settle_ms = 1_000) {
  await page.goto(address);
  await page.locator('h1').first().waitFor();
  await page.waitForTimeout(settle_ms);
  await shot(page, picture);
  const faults = await audit(page);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  if (wide > 0) faults.push(`${wide} px too wide`);
  return faults;
}

/** Serious faults that axe finds, as lines. The page's policy keeps scripts out, so it is run in an isolated world. */
export async function audit(page) {
  const session = await page.context().newCDPSession(page);
  const { frameTree } = await session.send('Page.getFrameTree');
  const { executionContextId: contextId } = await session.send('Page.createIsolatedWorld', {
    frameId: frameTree.frame.id,
    worldName: 'axe',
  });
  await session.send('Runtime.evaluate', { expression: AXE, contextId });
  const { result, exceptionDetails } = await session.send('Runtime.evaluate', {
    contextId,
    awaitPromise: true,
    returnByValue: true,
    expression: `axe.run(document, { resultTypes: ['violations'] }).then((found) => found.violations
      .filter((one) => one.impact === 'serious' || one.impact === 'critical')
      .map((one) => one.id + ': ' + one.nodes.slice(0, 3).map((node) => node.html.slice(0, 140) + ' ' + (node.any[0]?.message ?? '')).join(' | ')))`,
  });
  await session.detach();
  if (exceptionDetails) throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
  return result.value;
}

/** Keeps a picture of what is seen, where SHOTS names a directory. */
export async function shot(page, name, fullPage = false) {
  const dir = process.env.SHOTS;
  if (!dir) return;
  mkdirSync(dir, { recursive: true });
  await page.screenshot({ path: join(dir, `${name}.png`), fullPage });
}

/** Fails with a message. */
export function check(holds, message) {
  if (!holds) throw new Error(message);
}
