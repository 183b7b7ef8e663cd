// The pictures of the README and the manual, of a running farm: board/pictures starts one and calls this.
// BASE, TOKEN; FILM, a job with several states; COMP, a job whose tasks wait; SHOTS, where the pictures go.

import { check, launch, openPage, shot, signIn } from './browser.mjs';

const base = process.env.BASE.replace(/\/$/, '');
const VIEWS = {
  overview: '/',
  job: `/jobs/${process.env.FILM}?state=running`,
  why: `/jobs/${process.env.COMP}/why`,
  workers: '/workers',
};

const browser = await launch();
const { page, errors } = await openPage(browser, { viewport: { width: 1280, height: 800 } });
await signIn(page, base, process.env.TOKEN);
errors.length = 0;
for (const [name, path] of Object.entries(VIEWS)) {
  await page.goto(base + path);
  await page.locator('h1').first().waitFor();
  await page.waitForTimeout(2_500);
  await shot(page, `board-${name}`);
}
await browser.close();
check(errors.length === 0, `errors on the pages: ${errors.join('; ')}`);
