import { svelte } from '@sveltejs/vite-plugin-svelte';
import { defineConfig } from 'vite';

// One script and one stylesheet: the page has nothing to fetch before it is complete.
export default defineConfig({
  plugins: [svelte()],
  build: {
    target: 'es2022',
    cssTarget: ['chrome123', 'firefox120', 'safari17.5'],
    outDir: 'dist',
    emptyOutDir: true,
    cssCodeSplit: false,
    modulePreload: false,
    // Nothing is put into the script as a data address: the policy of the pages allows images alone.
    assetsInlineLimit: 0,
    sourcemap: false,
    rolldownOptions: {
      output: {
        codeSplitting: false,
        entryFileNames: 'assets/board-[hash].js',
        assetFileNames: 'assets/board-[hash][extname]',
      },
    },
  },
});
