import { describe, expect, it } from 'vitest';
import { absolute, ago, bytes, count, cpus, duration, percent, plural, points, short } from '../src/lib/format';

describe('numbers', () => {
  it('shows unknown as a dash and never as 0', () => {
    for (const show of [count, short, cpus, points, percent, bytes, duration, absolute]) {
      expect(show(null)).toBe('–');
      expect(show(undefined)).toBe('–');
      expect(show(0)).not.toBe('–');
    }
    expect(ago(null, 0)).toBe('–');
  });

  it('separates thousands, and shortens on request', () => {
    expect(count(1_234_567)).toBe('1,234,567');
    expect([999, 1000, 12_345, 999_600, 1_500_000, 2e9].map(short)).toEqual(['999', '1k', '12.3k', '1M', '1.5M', '2G']);
  });

  it('keeps three digits of bytes and names the unit', () => {
    expect([0, 999, 1024, 1536, 2 ** 20 * 10, 2 ** 30 * 1.53, 2 ** 40 * 256].map(bytes)).toEqual([
      '0 B',
      '999 B',
      '1.00 KiB',
      '1.50 KiB',
      '10.0 MiB',
      '1.53 GiB',
      '256 TiB',
    ]);
  });

  it('signs points, and shows small parts of a hundred', () => {
    expect([12.34, -0.5, 0].map(points)).toEqual(['+12.3', '−0.5', '0.0']);
    expect([0, 0.0003, 0.004, 0.5, 1].map(percent)).toEqual(['0%', '<0.1%', '0.4%', '50%', '100%']);
    expect([plural(1, 'task'), plural(2, 'task'), plural(0, 'entry', 'entries')]).toEqual([
      '1 task',
      '2 tasks',
      '0 entries',
    ]);
  });
});

describe('times', () => {
  it('shows a span in its two largest units, as the commands do', () => {
    const spans: [number, string][] = [
      [0, '0 ms'],
      [0.213, '0.21 ms'],
      [636, '636 ms'],
      [999.7, '1.0s'],
      [3_240, '3.2s'],
      [35_000, '35s'],
      [59_600, '1m'],
      [299_000, '4m 59s'],
      [3_600_000, '1h'],
      [7_500_000, '2h 5m'],
      [86_400_000 * 3 + 3_600_000 * 4, '3d 4h'],
      [-5, '0 ms'],
    ];
    for (const [ms, text] of spans) expect(duration(ms)).toBe(text);
  });

  it('never shows sixty of a unit', () => {
    for (let ms = 900; ms < 200_000_000; ms = Math.ceil(ms * 1.013))
      expect(duration(ms)).not.toMatch(/\b(60[ms]|24h)\b/);
  });

  it('says how long ago in whole seconds, and what is still to come', () => {
    expect([ago(0, 500), ago(0, 2_700), ago(0, 65_900), ago(60_000, 0)]).toEqual([
      'now',
      '2s ago',
      '1m 5s ago',
      'in 1m',
    ]);
  });

  it('names a moment down to the second', () => {
    expect(absolute(new Date(2026, 10, 3, 7, 4, 9).getTime())).toBe('2026-11-03 07:04:09');
  });
});
