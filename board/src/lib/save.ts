// Gives the person a file.

/** Saves what an address answers. */
export function saveLink(href: string, name: string): void {
  const link = document.createElement('a');
  link.href = href;
  link.download = name;
  link.click();
}

/** Saves a text as a file of comma-separated values. */
export function saveCsv(name: string, text: string): void {
  const href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
  saveLink(href, name);
  URL.revokeObjectURL(href);
}
