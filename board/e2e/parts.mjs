// The parts of a test in a browser. Each has a page of its own. One that fails is told, and the others go on.

import { SIZES, check, launch, lookAt, openPage, shot } from './browser.mjs';

/** Lines of an error that are told. */
const LINES_MAX = 8;

/**
 * Opens the browser of a test. `enter(page, options)` brings the page of each part to where it begins, such as behind
 * the sign-in; it gets the options of the part. `only` leaves out the parts whose names do not have this word.
 */
export async function openParts({ enter, only }) {
  const browser = await launch();
  let failed = 0;

  /**
   * Runs `steps(page, errors)` on a page of its own. The part fails if they throw, or if errors are left that the page
   * showed meanwhile; steps that expect some empty the list.
   */
  async function part(name, steps, { size, dark, ...options } = {}) {
    if (only && !name.includes(only)) return;
    const { page, context, errors } = await openPage(browser, { size, dark });
    try {
      await enter(page, options);
      errors.length = 0;
      await steps(page, errors);
      check(errors.length === 0, `errors on the page: ${errors.join('; ')}`);
      console.log(`ok     ${name}`);
    } catch (error) {
      failed += 1;
      const lines = String(error.message ?? error).split('\n');
      console.log(`FAILED ${name}\n       ${lines.slice(0, LINES_MAX).join('\n       ')}`);
      await shot(page, `failed-${name.replaceAll(/[^a-z]+/gi, '-')}`).catch(() => {});
    } finally {
      await context.close();
    }
  }

  /** Looks at all views, paths by name, in a part for each size of the screen, light and dark. */
  async function lookAtAll(base, views, prefix = '') {
    for (const theme of ['light', 'dark']) {
      for (const size of Object.keys(SIZES)) {
        await part(
          `all views, ${size}, ${theme}`,
          async (page) => {
            const faults = [];
            for (const [name, path] of Object.entries(views)) {
              const found = await lookAt(page, base + path, `${prefix}${name}-${size}-${theme}`);
              faults.push(...found.map((fault) => `${name}: ${fault}`));
            }
            check(faults.length === 0, faults.join('\n'));
          },
          { size, dark: theme === 'dark' },
        );
      }
    }
  }

  /** Closes the browser and tells how it went, also by the status of the program. */
  async function end() {
    await browser.close();
    console.log(failed === 0 ? 'all passed' : `${failed} failed`);
    process.exitCode = failed === 0 ? 0 : 1;
  }

  return { part, lookAtAll, end };
}
