// Reads a rule's file, an npz archive of float32 arrays, in the browser.
'use strict';

async function inflate(bytes) {
  const stream = new Blob([bytes]).stream()
    .pipeThrough(new DecompressionStream('deflate-raw'));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

// The members of a zip archive by name, from the directory at its end.
async function unzip(buffer) {
  const view = new DataView(buffer);
  let end = buffer.byteLength - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  if (end < 0) throw new Error('it is no npz archive');
  const members = {};
  let at = view.getUint32(end + 16, true);
  for (let i = view.getUint16(end + 10, true); i > 0; i--) {
    const [method, packed, name, extra, comment, start] = [
      view.getUint16(at + 10, true), view.getUint32(at + 20, true),
      view.getUint16(at + 28, true), view.getUint16(at + 30, true),
      view.getUint16(at + 32, true), view.getUint32(at + 42, true)];
    const first = start + 30 + view.getUint16(start + 26, true)
      + view.getUint16(start + 28, true);
    const bytes = new Uint8Array(buffer, first, packed);
    members[new TextDecoder().decode(new Uint8Array(buffer, at + 46, name))] =
      method === 0 ? bytes : await inflate(bytes);
    at += 46 + name + extra + comment;
  }
  return members;
}

// An npy file: a header in Python's syntax, then the numbers.
function readArray(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const isLong = bytes[6] > 1, start = isLong ? 12 : 10;
  const end = start + (isLong ? view.getUint32(8, true) : view.getUint16(8, true));
  const header = new TextDecoder().decode(bytes.subarray(start, end));
  const dtype = header.match(/'descr': '([^']+)'/)?.[1];
  const shape = header.match(/'shape': \(([^)]*)\)/)?.[1].match(/\d+/g) ?? [];
  const content = bytes.slice(end);
  if (dtype === '|u1') return { shape: shape.map(Number), data: content };
  if (dtype !== '<f4' || header.includes("'fortran_order': True")) {
    throw new Error(`it has an array of ${dtype}, not of float32 row by row`);
  }
  return { shape: shape.map(Number), data: new Float32Array(content.buffer) };
}

// The weights and settings of a rule; `card` is the text of its rule.json, or ''.
async function readRule(buffer, card, defaults) {
  const weights = {};
  for (const [name, bytes] of Object.entries(await unzip(buffer))) {
    weights[name.replace(/\.npy$/, '')] = readArray(bytes);
  }
  const note = weights.format
    ? JSON.parse(new TextDecoder().decode(weights.format.data)) : {};
  delete weights.format;
  if (note.network?.transformer_layers) {
    throw new Error('it has a transformer; this page knows only LSTMs');
  }
  if (!('lstm/lstm/linear/w' in weights)) {
    throw new Error('it has not the arrays of a rule');
  }
  const own = { ...(card ? JSON.parse(card).settings : {}), ...note.settings };
  const settings = {
    discount: own.discount ?? defaults.discount,
    lambda: own.lambda_ ?? defaults.lambda,
    rewardScale: own.reward_scale ?? defaults.rewardScale,
    momentsDecay: own.moments_decay ?? defaults.momentsDecay,
    hasQ: note.network?.has_q ?? defaults.hasQ,
  };
  return { weights, settings };
}
