"use strict";
// The page of `pumit view` and `pumit serve`. The server keeps a scan and a cache; the undo history is here:
// each segment is a list of prompts, and its mask is the server's answer to them.
// Frames: voxels are (i, j, k), column, row and slice as in files; the server's mm are LPS, NiiVue's are RAS.

const API = "/pumit/v3";
const STREAM = "application/x-pumit-stream";
const TOKEN_KEY = "pumit-token";
const HEARTBEAT_MS = 20_000;
const PLANAR_SPACING_MM = 1e8;
const CHUNK_BYTES = 1 << 22;
const COLORS = ["#f2c14e", "#4fd1c5", "#e76f9b", "#7aa5f7", "#9bd65b", "#f28e4b", "#b98ee8", "#e8e8e8"];
const byId = (id) => document.getElementById(id);

let nv, scan, lease, token, overlay, search, chosen; // scan: id, dims, steps (LPS columns), origin, geometry, isDicom, restore()
let opening = Promise.resolve(); // afterwards the session has the scan that is shown, or there is no session
let present = { segments: [], current: 0 };
let past = [], future = [], nextId = 1, isDirty = false, running = 0, started = 0;
const answers = new Map(); // by a segment's prompts: bounding box and bits of the mask, and the server's metadata
const priors = new Map(); // masks by the server's hash

// --- the server -------------------------------------------------------------------------------------------

class Refusal extends Error {
  constructor(status, body) {
    super(body.detail || `The server answered ${status}.`);
    this.status = status;
    this.kind = body.error;
  }
}

async function call(path, { body, meta, accept = "json", method = "POST", keepalive = false, signal, scanId } = {}) {
  const headers = { Authorization: `Bearer ${token}`, "X-Pumit-Api": "3", "X-Pumit-Codec": "identity" };
  if (lease) headers["X-Lease-Token"] = lease;
  // The server refuses the request if it has another scan, as after a restart.
  if (scanId) headers["X-Pumit-Scan"] = scanId;
  if (meta) headers["X-Meta"] = JSON.stringify(meta);
  const isArray = body instanceof Blob;
  if (body) headers["Content-Type"] = isArray ? "application/octet-stream" : "application/json";
  let answer, stream;
  try {
    answer = await fetch(path, { method, headers, keepalive, signal, cache: "no-store", body: body && !isArray ? JSON.stringify(body) : body });
    if (answer.headers.get("Content-Type") === STREAM) stream = await answer.arrayBuffer();
  } catch {
    if (signal?.aborted) throw new Refusal(409, { detail: "The computation was cancelled.", error: "Cancelled" });
    throw new Refusal(0, { detail: "The server does not answer; is it still running?" });
  }
  if (!answer.ok) throw new Refusal(answer.status, await answer.json().catch(() => ({})));
  if (stream) return { bytes: resultOf(stream) };
  if (accept === "json") return answer.json();
  return { bytes: await answer.arrayBuffer(), headers: answer.headers };
}

// Lines of JSON with the progress, then the result or a refusal; see pumit/wire/stream.py.
function resultOf(stream) {
  const bytes = new Uint8Array(stream);
  for (let at = 0, end; (end = bytes.indexOf(10, at)) >= 0; at = end + 1) {
    const line = JSON.parse(new TextDecoder().decode(bytes.subarray(at, end)));
    if (line.status) throw new Refusal(line.status, line);
    if ("progress" in line) continue;
    if (line.bytes === bytes.length - end - 1) return stream.slice(end + 1);
    break;
  }
  throw new Refusal(0, { detail: "The answer is damaged; try again." });
}

// Asks about the scan that is shown. If there is no session, or it has expired, another one gets the scan first.
async function ask(path, options) {
  const about = scan;
  for (let hasExpired = false; ;) {
    const turn = opening;
    await turn;
    if (about !== scan) throw new Refusal(409, { detail: "Another scan was opened.", error: "Cancelled" });
    if (turn !== opening) continue;
    if (!lease) {
      await openScan(scan.restore);
      continue;
    }
    const outcome = await call(path, { ...options, scanId: about.id }).catch((error) => error);
    // If a scan has been sent since, the outcome may be about that one: ask again.
    if (turn !== opening) continue;
    if (outcome.status === 410 && !hasExpired) {
      hasExpired = true;
      endSession();
      continue;
    }
    if (outcome instanceof Error) throw outcome;
    return outcome;
  }
}

// Calls `send`, which sends a scan and shows it, after all earlier ones. Requests wait for its end.
function openScan(send) {
  const opened = opening.then(() => sendScan(send));
  opening = opened.catch(() => {});
  return opened;
}

async function sendScan(send) {
  let isKept = false;
  try {
    isKept = Boolean(lease) && await call("/heartbeat").then(() => true, () => false);
    if (!isKept) {
      endSession();
      lease = (await call("/claim")).lease_token;
    }
    await send();
  } catch (error) {
    // A session keeps its scan if PUMIT refuses the next one. After any other failure it may have either.
    const isRefused = error.kind && (error.status < 500 || error.status === 503);
    if (!isKept || !isRefused) endSession();
    throw error;
  }
}

function endSession(options) {
  if (lease) call("/release", options).catch(() => {});
  lease = null;
}

function unpackBundle(buffer) {
  const view = new DataView(buffer);
  const length = view.getUint32(0, true);
  const meta = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, length)));
  const arrays = {};
  let at = 4 + length;
  for (const name of meta.arrays) {
    const size = Number(view.getBigUint64(at, true));
    arrays[name] = unpackArray(new DataView(buffer, at + 8, size));
    at += 8 + size;
  }
  return { meta, arrays };
}

// An `NNIA` envelope with uncompressed chunks; see pumit/wire/arrays.py.
function unpackArray(view) {
  const axes = view.getUint8(6), nameLength = view.getUint8(7);
  const name = new TextDecoder().decode(new Uint8Array(view.buffer, view.byteOffset + 8, nameLength));
  let at = 8 + nameLength;
  let size = 1;
  for (let axis = 0; axis < axes; axis++, at += 8) size *= Number(view.getBigInt64(at, true));
  const Kind = { uint8: Uint8Array, bool: Uint8Array, uint16: Uint16Array, uint32: Uint32Array, uint64: BigUint64Array }[name];
  const values = new Kind(size);
  const bytes = new Uint8Array(values.buffer);
  const chunks = view.getUint32(at, true);
  at += 4;
  let written = 0;
  for (let chunk = 0; chunk < chunks; chunk++) {
    const plain = Number(view.getBigUint64(at, true)), packed = Number(view.getBigUint64(at + 8, true));
    if (packed !== plain + 32) throw new Error("The answer is compressed in a way that this page does not read.");
    bytes.set(new Uint8Array(view.buffer, view.byteOffset + at + 48, plain), written);
    written += plain;
    at += 16 + packed;
  }
  return values;
}

function packArray(values, shape) {
  const names = { Int8Array: "int8", Uint8Array: "uint8", Int16Array: "int16", Uint16Array: "uint16", Int32Array: "int32", Uint32Array: "uint32", Float32Array: "float32", Float64Array: "float64" };
  const name = names[values.constructor.name];
  const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength);
  const chunks = Math.ceil(bytes.length / CHUNK_BYTES);
  const head = new DataView(new ArrayBuffer(8 + name.length + 8 * shape.length + 4));
  [..."NNIA"].forEach((letter, i) => head.setUint8(i, letter.charCodeAt(0)));
  [1, 2, shape.length, name.length].forEach((value, i) => head.setUint8(4 + i, value));
  [...name].forEach((letter, i) => head.setUint8(8 + i, letter.charCodeAt(0)));
  shape.forEach((n, i) => head.setBigInt64(8 + name.length + 8 * i, BigInt(n), true));
  head.setUint32(8 + name.length + 8 * shape.length, chunks, true);
  const parts = [head.buffer];
  for (let at = 0; at < bytes.length; at += CHUNK_BYTES) {
    const piece = bytes.subarray(at, at + CHUNK_BYTES), n = piece.length;
    const chunk = new DataView(new ArrayBuffer(48));
    chunk.setBigUint64(0, BigInt(n), true);
    chunk.setBigUint64(8, BigInt(n + 32), true);
    [5, 1, 0x07, values.BYTES_PER_ELEMENT].forEach((value, i) => chunk.setUint8(16 + i, value));
    [n, Math.min(n, 1 << 13), n + 32].forEach((value, i) => chunk.setInt32(20 + 4 * i, value, true));
    chunk.setUint8(16 + 22, 1);
    parts.push(chunk.buffer, piece);
  }
  return new Blob(parts);
}

// --- frames -----------------------------------------------------------------------------------------------

const toLps = (ijk) => [0, 1, 2].map((r) => scan.origin[r] + scan.steps[r].reduce((sum, step, c) => sum + step * ijk[c], 0));

// NiiVue's fractions run along the file's axes, reordered and flipped to the nearest RAS axes.
function toVoxel(frac) {
  const ijk = [0, 0, 0];
  nv.volumes[0].permRAS.forEach((axis, i) => {
    const a = Math.abs(axis) - 1, n = scan.dims[a];
    ijk[a] = axis > 0 ? frac[i] * n - 0.5 : n - 0.5 - frac[i] * n;
  });
  return ijk;
}

// Makes a NIfTI file for NiiVue from voxels and a RAS affine.
function makeNifti(values, dims, affine) {
  const codes = { Uint8Array: 2, Int16Array: 4, Int32Array: 8, Float32Array: 16, Float64Array: 64, Int8Array: 256, Uint16Array: 512, Uint32Array: 768 };
  const file = new Uint8Array(352 + values.byteLength);
  const head = new DataView(file.buffer);
  head.setInt32(0, 348, true);
  [3, ...dims, 1, 1, 1, 1].forEach((n, i) => head.setInt16(40 + 2 * i, n, true));
  head.setInt16(70, codes[values.constructor.name], true);
  head.setInt16(72, 8 * values.BYTES_PER_ELEMENT, true);
  const spacing = [0, 1, 2].map((c) => Math.hypot(affine[0][c], affine[1][c], affine[2][c]));
  [1, ...spacing].forEach((v, i) => head.setFloat32(76 + 4 * i, v, true));
  head.setFloat32(108, 352, true);
  head.setFloat32(112, 1, true);
  head.setUint8(123, 2);
  head.setInt16(254, 1, true);
  affine.slice(0, 3).flat().forEach((v, i) => head.setFloat32(280 + 4 * i, v, true));
  [..."n+1"].forEach((letter, i) => head.setUint8(344 + i, letter.charCodeAt(0)));
  file.set(new Uint8Array(values.buffer, values.byteOffset, values.byteLength), 352);
  return file.buffer;
}

// --- the scan ---------------------------------------------------------------------------------------------

async function openServersScan() {
  say("Opening the scan.");
  const { bytes, headers } = await call(`${API}/scan`, { accept: "bytes" });
  const meta = JSON.parse(headers.get("X-Meta"));
  const image = await niivue.NVImage.loadFromFile({ file: new File([bytes], "scan.nii"), name: "scan.nii" });
  const id = headers.get("X-Pumit-Scan");
  show(image, await makeOverlay(image), { ...meta, id }, () => call(`${API}/scan`, { accept: "bytes", scanId: id }));
}

// Opens a local file: it is parsed here, and its voxels and geometry are sent.
async function openFile(file) {
  say("Reading the file.");
  const image = await niivue.NVImage.loadFromFile({ file, name: file.name }).catch(() => null);
  const dims = image ? dimsOf(image) : [], size = dims[0] * dims[1] * dims[2];
  if (!(image?.img.length >= size))
    throw new Error("This file is damaged, incomplete, or not NIfTI, NRRD or MHA of a usual kind. Others, DICOM and pictures open by `pumit view FILE`.");
  const { hdr } = image;
  const rgb = [128, 2304].includes(hdr.datatypeCode);
  if (rgb) throw new Error("Colour images open by `pumit view FILE`.");
  // Of a file that does not say where its axes point to, ITK and so PUMIT and Slicer assume LPS, and NiiVue RAS.
  const stated = await statedGrid(file).catch(() => null);
  if (stated && !stated.isPlaced) image.setAffine(affineOf(stated));
  const affine = hdr.affine, columns = [0, 1, 2].map((c) => [-affine[0][c], -affine[1][c], affine[2][c]]);
  const spacing = columns.map((v) => Math.hypot(...v));
  const axes = columns.map((v, c) => v.map((x) => x / spacing[c]));
  const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
  if ([[0, 1], [0, 2], [1, 2]].some(([a, b]) => !(Math.abs(dot(axes[a], axes[b])) < 1e-3)))
    throw new Error("The axes of this scan are not perpendicular; open it by `pumit view FILE`.");
  if (!(isThere(stated, dims, affine) || /\.mg[hz]$/i.test(file.name)))
    throw new Error("This page would show this file at another place than Slicer and PUMIT; open it by `pumit view FILE`.");
  let values = image.img.length > size ? image.img.slice(0, size) : image.img;
  const slope = hdr.scl_slope || 1, inter = hdr.scl_inter || 0;
  if (slope !== 1 || inter !== 0) values = Float32Array.from(values, (v) => v * slope + inter);
  const meta = {
    spacing_mm: [dims[2] === 1 ? PLANAR_SPACING_MM : spacing[2], spacing[1], spacing[0]],
    origin_lps: [-affine[0][3], -affine[1][3], affine[2][3]],
    direction: [0, 1, 2].map((r) => axes.map((v) => v[r])),
  };
  const send = () => call(`${API}/volume`, { body: packArray(values, [dims[2], dims[1], dims[0]]), meta, accept: "bytes" });
  const masks = await makeOverlay(image);
  if (file !== chosen) return; // another one was chosen while this one was read
  say("Sending the scan to the server.");
  await openScan(async () => {
    const { headers } = await send();
    show(image, masks, { ...meta, id: headers.get("X-Pumit-Scan"), is_dicom: false }, send);
  });
}

// RAS rows.
const affineOf = ({ steps, origin }) => [...[0, 1, 2].map((r) => [...steps.map((v) => v[r]), origin[r]].map((x) => (r < 2 ? -x : x))), [0, 0, 0, 1]];

// Whether a RAS affine has the eight corners of a grid at their place, up to a quarter of a voxel.
function isThere(grid, dims, affine) {
  if (!grid || grid.dims.some((n, c) => n !== dims[c])) return false;
  const stated = affineOf(grid), long = [0, 1, 2].filter((c) => dims[c] > 1);
  const tolerance = Math.min(...long.map((c) => Math.hypot(...grid.steps[c]))) / 4;
  return [0, 1, 2, 3, 4, 5, 6, 7].every((corner) => {
    const axes = long.filter((c) => corner >> c & 1);
    const gap = [0, 1, 2].map((r) => stated[r][3] - affine[r][3] + axes.reduce((sum, c) => sum + (dims[c] - 1) * (stated[r][c] - affine[r][c]), 0));
    return Math.hypot(...gap) <= tolerance;
  });
}

const dimsOf = (image) => image.hdr.dims.slice(1, 4).map((n) => Math.max(n, 1));

function makeOverlay(image) {
  const dims = dimsOf(image), empty = makeNifti(new Uint8Array(dims[0] * dims[1] * dims[2]), dims, image.hdr.affine);
  return niivue.NVImage.loadFromFile({ file: new File([empty], "mask.nii"), name: "mask.nii", opacity: byId("opacity").value / 100 });
}

// Never waits, so that nothing is drawn or asked about two scans.
function show(image, masks, meta, send) {
  const dims = dimsOf(image), spacing = [meta.spacing_mm[2], meta.spacing_mm[1], meta.spacing_mm[0]];
  scan = null;
  for (const volume of [...nv.volumes].reverse()) nv.removeVolume(volume);
  answers.clear(), priors.clear();
  present = { segments: [], current: 0 };
  past = [], future = [], isDirty = false, gesture = corner = null;
  nv.addVolume(image);
  overlay = masks;
  overlay.setColormapLabel(labelColors());
  nv.addVolume(overlay);
  const shown = scan = {
    id: meta.id, dims, isDicom: meta.is_dicom, origin: meta.origin_lps, isPlanar: dims[2] === 1,
    restore: async () => { shown.id = (await send()).headers.get("X-Pumit-Scan"); },
    steps: meta.direction.map((row) => row.map((x, c) => x * spacing[c])),
    voxelMl: spacing[0] * spacing[1] * spacing[2] / 1000,
  };
  addSegment();
  byId("no-dicom").hidden = scan.isDicom;
  nv.scene.crosshairPos = [0.5, 0.5, 0.5];
  nv.scene.pan2Dxyzmm = [0, 0, 0, 1];
  nv.opts.crosshairWidth = 1;
  byId("planes").value = scan.isPlanar ? "0" : "3";
  showPlanes();
  refresh();
  say(`Scan of ${dims.join(" × ")} voxels. Click inside a structure.`);
}

// --- segments ---------------------------------------------------------------------------------------------

const keyOf = (segment) => segment.prompts.length ? `${segment.id} ${JSON.stringify(segment.prompts)}` : "";
const answerOf = (segment) => answers.get(keyOf(segment));
const current = () => present.segments[present.current];

function addSegment(name, color) {
  const id = String(nextId++), count = present.segments.length;
  const segment = { id, name: name || `Segment ${id}`, color: color || COLORS[count % COLORS.length], prompts: [] };
  present = { segments: [...present.segments, segment], current: count };
}

function change(next) {
  past.push(present);
  future = [];
  present = next;
  isDirty = true;
}

function withPrompts(prompts) {
  const segments = present.segments.map((s, i) => (i === present.current ? { ...s, prompts } : s));
  return { ...present, segments };
}

async function addPrompt(prompt) {
  if (!scan) return;
  change(withPrompts([...current().prompts, prompt]));
  await update(true);
}

// Requests the missing masks, and draws.
async function update(isNew = false) {
  refresh();
  const turn = ++started, asked = present;
  for (const segment of present.segments) {
    const key = keyOf(segment);
    if (!key || answers.has(key)) continue;
    busy(1);
    say("Computing.");
    try {
      const answer = await predict(segment);
      answers.set(key, answer);
      if (turn === started) say(describe(segment, answer));
    } catch (error) {
      // Superseded by a newer request for this segment; the newest one is asked again.
      if (error.status === 409) return turn === started ? update(isNew) : undefined;
      if (isNew && present === asked) present = past.pop();
      fail(error);
    } finally {
      busy(-1);
    }
  }
  refresh();
}

async function predict(segment, isSecond = false) {
  try {
    const { bytes } = await ask(`${API}/predict`, { body: { segment: segment.id, prompts: segment.prompts } });
    const { meta, arrays } = unpackBundle(bytes);
    return { box: meta.bbox, bits: arrays.mask, ...meta };
  } catch (error) {
    if (error.status !== 424 || isSecond) throw error;
    for (const prompt of segment.prompts) if (prompt.kind === "mask") await sendMask(priors.get(prompt.sha256));
    return predict(segment, true);
  }
}

async function sendMask(mask) {
  const { sha256 } = await ask(`${API}/mask_prior`, { body: packArray(mask.bits, [mask.bits.length]), meta: { bbox: mask.box } });
  priors.set(sha256, mask);
  return sha256;
}

const bitCounts = Uint8Array.from({ length: 256 }, (_, n) => n.toString(2).replaceAll("0", "").length);
const countOf = (answer) => answer.count ??= (answer.bits ?? []).reduce((sum, byte) => sum + bitCounts[byte], 0);

// As `volume_text` in pumit/system/wording.py.
function volumeText(ml) {
  const [scale, unit] = [[1, "mL"], [1e3, "mm³"]].find(([per]) => ml * per >= 1e-3) ?? [1e12, "µm³"];
  return `${(ml * scale).toLocaleString("en", { maximumSignificantDigits: 4 })} ${unit}`;
}

function describe(segment, answer) {
  if (!answer.box) return `${segment.name}: nothing found there; click elsewhere or draw a box.`;
  const count = countOf(answer);
  const size = scan.isPlanar ? `${count} pixels` : volumeText(count * scan.voxelMl);
  const parts = [`${segment.name}: ${size}`];
  if (answer.quality) parts.push(answer.quality);
  if (answer.choice?.count > 1) parts.push(`answer ${answer.choice.number} of ${answer.choice.count}`);
  return parts.join(", ") + ".";
}

async function anotherAnswer() {
  const choice = answerOf(current())?.choice;
  if (!(choice?.count > 1)) return;
  const drawn = current().prompts.filter((p, i, all) => !(p.kind === "answer" && i === all.length - 1));
  change(withPrompts([...drawn, { kind: "answer", number: choice.number % choice.count + 1 }]));
  await update();
}

const undo = () => travel(past, future, "Undone.");
const redo = () => travel(future, past, "Done again.");

function travel(from, to, said) {
  if (!from.length) return;
  to.push(present);
  present = from.pop();
  isDirty = true;
  say(said);
  update();
}

// --- find by name -----------------------------------------------------------------------------------------

async function find(structure, options = {}) {
  busy(1);
  byId("stop").hidden = false;
  const own = search = new AbortController();
  say(`Looking for ${structure}.`);
  try {
    const { bytes } = await ask(`${API}/find`, { body: { structure, ...options }, signal: search.signal });
    const { meta, arrays } = unpackBundle(bytes);
    await takeFound(meta, arrays);
  } catch (error) {
    if (error.status === 409 && search !== own) return; // a newer search replaced it
    if (error.kind === "UnknownModality" && !options.modality) {
      const said = window.prompt(`${error.message}\nWrite CT or MR:`, "CT");
      if (said) return await find(structure, { ...options, modality: said.trim().toUpperCase() });
    } else if (["OtherModality", "UnfamiliarScan"].includes(error.kind) && window.confirm(`${error.message}\nLook for it all the same?`)) {
      return await find(structure, { ...options, anyway: true });
    } else fail(error);
  } finally {
    if (search === own) byId("stop").hidden = true;
    busy(-1);
  }
}

async function takeFound(meta, arrays) {
  const found = [];
  for (const [i, { name, terminology, color_rgb }] of meta.classes.entries()) {
    const mask = meta.bbox && maskOfClass(meta.bbox, arrays, i + 1);
    if (mask) found.push({ name, terminology, color: hex(color_rgb), model: meta.model, mask, sha256: await sendMask(mask) });
  }
  if (!found.length) return say("Nothing of it was found in this scan.");
  change({ ...present, segments: present.segments.filter((s) => s.prompts.length) });
  for (const { mask, sha256, name, color, ...facts } of found) {
    addSegment(name, color);
    Object.assign(current(), facts, { prompts: [{ kind: "mask", sha256 }] });
    answers.set(keyOf(current()), { ...mask, quality: null });
  }
  refresh();
  say([`${found.map((f) => f.name).join(", ")} found by ${meta.model}.`, ...meta.remarks].join(" "));
}

// Returns the bits of a class in its bounding box; null if it is empty.
function maskOfClass(outer, { labels, regions }, number) {
  const [D, H, W] = outer.map(([a, b]) => b - a);
  const bit = regions instanceof BigUint64Array ? 1n << BigInt(number - 1) : 2 ** (number - 1);
  const isIn = regions ? (at) => Boolean(typeof bit === "bigint" ? regions[at] & bit : Math.floor(regions[at] / bit) % 2) : (at) => labels[at] === number;
  const low = [D, H, W], high = [-1, -1, -1];
  for (let d = 0, at = 0; d < D; d++) for (let h = 0; h < H; h++) for (let w = 0; w < W; w++, at++)
    if (isIn(at)) [d, h, w].forEach((v, i) => { low[i] = Math.min(low[i], v); high[i] = Math.max(high[i], v); });
  if (high[0] < 0) return null;
  const size = high.map((v, i) => v - low[i] + 1);
  const bits = new Uint8Array(Math.ceil(size[0] * size[1] * size[2] / 8));
  let n = 0;
  for (let d = low[0]; d <= high[0]; d++) for (let h = low[1]; h <= high[1]; h++) for (let w = low[2]; w <= high[2]; w++, n++)
    if (isIn((d * H + h) * W + w)) bits[n >> 3] |= 128 >> (n & 7);
  return { bits, box: outer.map(([a], i) => [a + low[i], a + high[i] + 1]) };
}

// --- drawing ----------------------------------------------------------------------------------------------

const rgb = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
const hex = (shares) => "#" + shares.map((s) => Math.round(255 * s).toString(16).padStart(2, "0")).join("");

function labelColors() {
  const colors = [[0, 0, 0], ...present.segments.map((s) => rgb(s.color))];
  if (colors.length < 2) colors.push([255, 255, 255]);
  return { R: colors.map((c) => c[0]), G: colors.map((c) => c[1]), B: colors.map((c) => c[2]), A: colors.map((_, i) => (i ? 255 : 0)), I: colors.map((_, i) => i), labels: colors.map(() => "") };
}

// Paints the masks into the overlay, on the scan's grid; later segments cover earlier ones.
function paint() {
  const image = overlay.img, [W, H] = scan.dims;
  image.fill(0);
  present.segments.forEach((segment, index) => {
    const answer = answerOf(segment);
    if (!answer?.box) return;
    const [[d0, d1], [h0, h1], [w0, w1]] = answer.box;
    let n = 0;
    for (let d = d0; d < d1; d++) for (let h = h0; h < h1; h++) {
      const row = (d * H + h) * W;
      for (let w = w0; w < w1; w++, n++) if (answer.bits[n >> 3] & (128 >> (n & 7))) image[row + w] = index + 1;
    }
  });
  overlay.setColormapLabel(labelColors());
  overlay.cal_min = 0;
  overlay.cal_max = 255;
  nv.updateGLVolume();
}

// Makes the body translucent in 3D, so that segments in it are visible; the planes do not change.
function seeThrough() {
  if (!scan || !nv.renderShader || !present.segments.some((s) => answerOf(s)?.box)) return;
  nv.renderShader.use(nv.gl);
  nv.gl.uniform1f(nv.renderShader.uniforms.backOpacity, 0.25);
  nv.drawScene();
}

// NiiVue's slice types: 0 axial, 1 coronal, 2 sagittal, 3 all planes and 3D, 4 only 3D.
function showPlanes() {
  nv.setSliceType(Number(byId("planes").value));
}

function zoom(factor) {
  const now = nv.scene.pan2Dxyzmm, next = Math.min(10, Math.max(1, now[3] * factor));
  const at = nv.frac2mm(nv.scene.crosshairPos, 0, nv.opts.isSliceMM);
  // Keep the crosshair at its place on the screen.
  nv.scene.pan2Dxyzmm = next === 1 ? [0, 0, 0, 1] : [0, 1, 2].map((i) => now[i] + (now[3] - next) * at[i]).concat(next);
  nv.opts.crosshairWidth = 1 / next;
  nv.drawScene();
}

// Returns the tiles of the three planes, with the affine map from pixels to fractions of each.
function tiles() {
  return nv.screenSlices.flatMap((slice, index) => {
    if (slice.axCorSag > 2) return [];
    let [left, top, width, height] = slice.leftTopWidthHeight;
    if (width < 0) [left, width] = [left + width, -width];
    // Probe inside the tile: at its border NiiVue may return a point outside.
    const probe = (x, y) => Array.from(nv.screenXY2TextureFrac(left + x * width, top + y * height, index, false));
    const middle = probe(0.5, 0.5);
    const across = probe(0.75, 0.5).map((v, i) => (v - middle[i]) * 4 / width);
    const down = probe(0.5, 0.75).map((v, i) => (v - middle[i]) * 4 / height);
    const from = middle.map((v, i) => v - across[i] * width / 2 - down[i] * height / 2);
    const horizontal = [0, 1, 2].find((i) => Math.abs(across[i]) > 1e-7), vertical = [0, 1, 2].find((i) => Math.abs(down[i]) > 1e-7);
    return [{ left, top, width, height, from, across, down, horizontal, vertical, through: 3 - horizontal - vertical }];
  });
}

const tileAt = ([x, y]) => tiles().find((t) => x >= t.left && x < t.left + t.width && y >= t.top && y < t.top + t.height);
const fractionAt = (tile, [x, y]) => Array.from(tile.from, (v, i) => v + tile.across[i] * (x - tile.left) + tile.down[i] * (y - tile.top));
const pixelOf = (tile, frac) => [
  tile.left + (frac[tile.horizontal] - tile.from[tile.horizontal]) / tile.across[tile.horizontal],
  tile.top + (frac[tile.vertical] - tile.from[tile.vertical]) / tile.down[tile.vertical],
];
const isInside = (frac) => frac.every((f) => f >= 0 && f <= 1);

function drawMarks() {
  const canvas = byId("marks");
  if (!scan || !nv.gl) return;
  canvas.width = nv.gl.canvas.width;
  canvas.height = nv.gl.canvas.height;
  const pen = canvas.getContext("2d"), unit = nv.uiData.dpr || 1;
  const segment = current();
  let isEmpty = true;
  const marks = [...(segment?.prompts ?? []).flatMap((p) => places.get(p) ?? []), ...(gesture ? [gesture] : [])];
  for (const tile of tiles()) {
    const here = nv.scene.crosshairPos[tile.through];
    const thick = 1 / scan.dims[Math.abs(nv.volumes[0].permRAS[tile.through]) - 1];
    pen.save();
    pen.beginPath();
    pen.rect(tile.left, tile.top, tile.width, tile.height);
    pen.clip();
    for (const { kind, positive, fractions } of marks) {
      // Only marks on this slice.
      if (!fractions.every((f) => Math.abs(f[tile.through] - here) < 0.75 * thick)) continue;
      const points = fractions.map((f) => pixelOf(tile, f));
      isEmpty = false;
      pen.beginPath();
      pen.lineWidth = 2 * unit;
      if (kind === "point") {
        pen.arc(...points[0], 5 * unit, 0, 2 * Math.PI);
        pen.fillStyle = positive ? "#1f9d55" : "#c0262d";
        pen.fill();
        pen.strokeStyle = "#fff";
      } else {
        pen.strokeStyle = positive ? "#4be08a" : "#ff5d5d";
        points.forEach(([x, y], i) => (i ? pen.lineTo(x, y) : pen.moveTo(x, y)));
        if (kind === "box") pen.closePath();
      }
      pen.stroke();
    }
    pen.restore();
  }
  // Chromium may keep showing the old content of a canvas that was cleared and not drawn on.
  canvas.hidden = isEmpty;
}

// --- gestures ---------------------------------------------------------------------------------------------

const places = new WeakMap(); // positions of drawn prompts: kind, positive, fractions
const tool = () => document.querySelector("input[name=tool]:checked").value;
let gesture = null; // a box or scribble while it is drawn
let corner = null; // first corner of a box from the keyboard

function canvasPoint(event) {
  const { left, top, width } = byId("view").getBoundingClientRect();
  const unit = nv.gl.canvas.width / width;
  return [(event.clientX - left) * unit, (event.clientY - top) * unit];
}

const corners = (tile, a, b) => {
  const mixed = (first, second) => a.map((_, i) => (i === tile.horizontal ? first[i] : i === tile.vertical ? second[i] : a[i]));
  return [a, mixed(b, a), mixed(b, b), mixed(a, b)];
};

function place({ kind, positive, fractions }) {
  const points = fractions.map((f) => toLps(toVoxel(f)));
  const prompt = {
    point: { kind: "point", point_lps: points[0], positive },
    box: { kind: "box", corners_lps: points },
    scribble: { kind: "scribble", points_lps: points, positive },
  }[kind];
  places.set(prompt, { kind, positive, fractions });
  addPrompt(prompt);
}

function begin(event) {
  if (!scan || tool() === "look" || event.button > 0) return;
  const at = canvasPoint(event), tile = tileAt(at);
  if (!tile) return;
  event.stopPropagation();
  event.preventDefault();
  byId("stage").focus({ preventScroll: true });
  const frac = fractionAt(tile, at);
  if (!isInside(frac)) return;
  // Move the other planes too.
  nv.scene.crosshairPos = frac;
  const name = tool();
  if (name === "inside" || name === "outside") {
    nv.drawScene();
    place({ kind: "point", positive: name === "inside", fractions: [frac] });
    return;
  }
  byId("stage").setPointerCapture(event.pointerId);
  const isBox = name === "box";
  gesture = { kind: isBox ? "box" : "scribble", positive: name !== "erase", fractions: [frac], tile, start: frac };
  nv.drawScene();
}

function move(event) {
  if (!gesture) return;
  event.stopPropagation();
  const frac = fractionAt(gesture.tile, canvasPoint(event)).map((f) => Math.min(1, Math.max(0, f)));
  if (gesture.kind === "box") gesture.fractions = corners(gesture.tile, gesture.start, frac);
  else gesture.fractions.push(frac);
  drawMarks();
}

function finish(event) {
  if (!gesture) return;
  event.stopPropagation();
  const done = gesture;
  gesture = null;
  if (event.type === "pointercancel") return drawMarks();
  if (done.kind === "box" && !isBox(done.fractions, done.tile)) {
    drawMarks();
    return say("Drag from one corner of the box to the other.");
  }
  place(done);
}

const isBox = (fractions, { horizontal, vertical }) =>
  fractions.length === 4 && [horizontal, vertical].every((i) => Math.abs(fractions[0][i] - fractions[2][i]) > 1e-3);

// NiiVue handles mouse and touch events, which follow the pointer events.
function keepFromNiivue(event) {
  if (scan && tool() !== "look" && !(event.button > 0) && tileAt(canvasPoint(event.touches?.[0] ?? event))) event.stopPropagation();
}

function keyboardPrompt() {
  const frac = Array.from(nv.scene.crosshairPos), name = tool();
  if (name === "inside" || name === "outside") place({ kind: "point", positive: name === "inside", fractions: [frac] });
  else if (name === "box" && corner) {
    const same = [0, 1, 2].filter((i) => Math.abs(corner[i] - frac[i]) < 1e-6);
    if (same.length !== 1) return say("The second corner must be on the same slice, and not in line with the first.");
    const tile = tiles().find((t) => t.through === same[0]) ?? { horizontal: (same[0] + 1) % 3, vertical: (same[0] + 2) % 3 };
    place({ kind: "box", positive: true, fractions: corners(tile, corner, frac) });
    corner = null;
  } else if (name === "box") {
    corner = frac;
    say("First corner. Move along the slice, and press Enter at the opposite one.");
  } else say("From the keyboard, use Inside, Outside or Box.");
}

const STEPS = { ArrowLeft: [-1, 0, 0], ArrowRight: [1, 0, 0], ArrowUp: [0, 1, 0], ArrowDown: [0, -1, 0], PageUp: [0, 0, 1], PageDown: [0, 0, -1] };
const ZOOMS = { "+": 1.25, "=": 1.25, "-": 0.8 };
// The keys of PUMIT Segment in Slicer.
const TOOL_KEYS = { Escape: "look", p: "inside", d: "box", s: "scribble" };
const OTHER_SIDE = { outside: "inside", scribble: "erase", erase: "scribble" };
const BUTTON_KEYS = { o: "other", n: "new" };

function stageKey(event) {
  if (event.key === "Tab" || event.ctrlKey || event.metaKey || event.altKey) return;
  event.stopPropagation();
  if (!scan) return;
  const step = STEPS[event.key];
  if (step) {
    nv.moveCrosshairInVox(...step.map((v) => v * (event.shiftKey ? 10 : 1)));
    const voxel = toVoxel(nv.scene.crosshairPos).map(Math.round);
    say(`Column ${voxel[0]}, row ${voxel[1]}, slice ${voxel[2]}.`);
  } else if (event.key === "Enter") keyboardPrompt();
  else if (ZOOMS[event.key]) zoom(ZOOMS[event.key]);
  else if (TOOL_KEYS[event.key]) choose(TOOL_KEYS[event.key]);
  else if (event.key === "i") choose(OTHER_SIDE[tool()] ?? "outside");
  else if (BUTTON_KEYS[event.key]) byId(BUTTON_KEYS[event.key]).click();
  else return;
  event.preventDefault();
}

function choose(name) {
  document.querySelector(`input[name=tool][value=${name}]`).checked = true;
  toolChanged();
}

function toolChanged() {
  corner = null;
  byId("stage").classList.toggle("look", tool() === "look");
}

// --- download ---------------------------------------------------------------------------------------------

async function download(format) {
  const isMissing = () => present.segments.some((s) => keyOf(s) && !answerOf(s));
  if (isMissing()) await update();
  if (isMissing()) return; // why is said
  const saved = present, segments = saved.segments.filter((s) => answerOf(s)?.box);
  if (!segments.length) return;
  busy(1);
  say("Writing the file.");
  try {
    const parts = [];
    for (const segment of segments) {
      const sha256 = await sendMask(answerOf(segment));
      parts.push({ sha256, name: segment.name, terminology: segment.terminology ?? "", color_rgb: rgb(segment.color).map((v) => v / 255) });
    }
    // Name the model only if it made all segments and none was corrected.
    const models = new Set(segments.map((s) => (s.prompts.every((p) => p.kind === "mask") ? s.model : null)));
    const [model] = models.size === 1 ? models : [null];
    const { bytes } = await ask(`${API}/export`, { body: { format, segments: parts, model }, accept: "bytes" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([bytes]));
    link.download = `segmentation.${format}`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
    if (present === saved) isDirty = false;
    say(`Downloaded ${link.download}.`);
  } catch (error) {
    fail(error);
  } finally {
    busy(-1);
  }
}

// --- the page ---------------------------------------------------------------------------------------------

function say(text) {
  byId("status").textContent = text;
}

function fail(error) {
  byId("problem").textContent = error.message;
  byId("problem").hidden = false;
  say("");
  if (error.status === 401) askForToken(error.message);
}

function busy(step) {
  if (step > 0) byId("problem").hidden = true;
  running += step;
  byId("stage").setAttribute("aria-busy", String(running > 0));
  document.body.classList.toggle("busy", running > 0);
}

function refresh() {
  if (!scan) return;
  paint();
  byId("undo").disabled = !past.length;
  byId("redo").disabled = !future.length;
  byId("other").disabled = !(answerOf(current())?.choice?.count > 1);
  const isSomething = present.segments.some((s) => answerOf(s)?.box);
  for (const button of document.querySelectorAll("[data-format]")) button.disabled = !isSomething || (button.dataset.format === "dcm" && !scan.isDicom);
  listSegments();
}

// Reuses the rows' elements, so that keyboard focus and a name being typed are kept.
function listSegments() {
  const list = byId("segments");
  for (const row of [...list.children]) if (!present.segments.some((s) => s.id === row.dataset.id)) row.remove();
  present.segments.forEach((segment, index) => {
    const row = [...list.children].find((r) => r.dataset.id === segment.id) ?? makeRow(segment.id);
    if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
    const [radio, swatch, name, remove, facts] = row.children;
    radio.checked = index === present.current;
    radio.setAttribute("aria-label", `Work on ${segment.name}`);
    swatch.style.background = segment.color;
    if (name !== document.activeElement) name.value = segment.name;
    remove.setAttribute("aria-label", `Remove ${segment.name}`);
    const answer = answerOf(segment);
    facts.textContent = answer ? describe(segment, answer).slice(segment.name.length + 2) : "";
  });
}

function makeRow(id) {
  const make = (tag, facts) => Object.assign(document.createElement(tag), facts);
  const row = make("li"), indexOf = () => present.segments.findIndex((s) => s.id === id);
  row.dataset.id = id;
  const radio = make("input", { type: "radio", name: "segment" });
  radio.onchange = () => { present = { ...present, current: indexOf() }; refresh(); };
  const name = make("input", { type: "text", maxLength: 64 });
  name.setAttribute("aria-label", "Name of the segment");
  name.onchange = () => {
    const index = indexOf(), value = name.value.trim() || present.segments[index].name;
    change({ ...present, segments: present.segments.map((s, i) => (i === index ? { ...s, name: value, terminology: undefined } : s)) });
    name.value = value;
    say(`Named ${value}.`);
    refresh();
  };
  const remove = make("button", { textContent: "×" });
  remove.onclick = () => {
    const index = indexOf(), segments = present.segments.filter((s) => s.id !== id);
    say(`${present.segments[index].name} removed.`);
    change({ segments, current: Math.max(0, Math.min(present.current - (index < present.current), segments.length - 1)) });
    if (!segments.length) addSegment();
    refresh();
    byId("segments").children[present.current].firstChild.focus();
  };
  row.append(radio, make("span", { className: "swatch" }), name, remove, make("small"));
  return row;
}

function askForToken(why = "") {
  sessionStorage.removeItem(TOKEN_KEY);
  byId("wrong").textContent = why;
  if (!byId("door").open) byId("door").showModal();
}

async function enter() {
  byId("problem").hidden = true;
  try {
    const { pumit } = await call("/capabilities", { method: "GET" });
    sessionStorage.setItem(TOKEN_KEY, token);
    byId("door").close();
    const models = pumit.models.filter((m) => m.kind === "automatic");
    byId("find").hidden = !models.length;
    const names = [...new Set(models.flatMap((m) => m.classes))].sort();
    byId("structures").replaceChildren(...names.map((value) => Object.assign(document.createElement("option"), { value })));
    // After a restart of the server, with a new code, the scan and its segments are kept.
    await openScan(() => (scan ? scan.restore().then(() => say("Open again.")) : openServersScan()));
  } catch (error) {
    if (error.status === 401) askForToken(error.message);
    else if (error.kind === "VolumeError" && !scan) say("Open a scan of your own: NIfTI, NRRD or MHA.");
    else fail(error);
  }
}

async function takeFile(file) {
  if (!file || !token || (isUnsaved() && !window.confirm("Segments of this scan are not saved. Open another one?"))) return;
  chosen = file;
  busy(1);
  await openFile(file).catch((error) => { if (file === chosen) fail(error); });
  busy(-1);
}

const isUnsaved = () => isDirty && present.segments.some((s) => answerOf(s)?.box);

async function start() {
  // Move the token from the form of `pumit view` to the tab's memory, and remove the form from the history.
  const handed = document.querySelector("meta[name=pumit-token]");
  if (handed) {
    sessionStorage.setItem(TOKEN_KEY, handed.content);
    location.replace(location.pathname);
    return;
  }
  token = sessionStorage.getItem(TOKEN_KEY);
  nv = new niivue.Niivue({ dragAndDropEnabled: false, backColor: [0, 0, 0, 1], crosshairColor: [0.3, 0.8, 0.75, 0.7], show3Dcrosshair: true, isSliceMM: false, isRadiologicalConvention: true, loadingText: "", logLevel: "error" });
  await nv.attachToCanvas(byId("view"));
  nv.opts.multiplanarShowRender = niivue.SHOW_RENDER.ALWAYS;
  nv.opts.multiplanarLayout = niivue.MULTIPLANAR_TYPE.GRID;
  byId("view").tabIndex = -1;
  byId("view").setAttribute("aria-hidden", "true");
  const draw = nv.drawScene.bind(nv);
  nv.drawScene = (...given) => {
    const made = draw(...given);
    drawMarks();
    return made;
  };
  const upload = nv.updateGLVolume.bind(nv);
  nv.updateGLVolume = () => {
    upload();
    seeThrough();
  };
  const stage = byId("stage");
  stage.addEventListener("pointerdown", begin, true);
  stage.addEventListener("pointermove", move, true);
  for (const name of ["pointerup", "pointercancel"]) stage.addEventListener(name, finish, true);
  for (const name of ["mousedown", "touchstart", "touchmove"]) stage.addEventListener(name, keepFromNiivue, { capture: true, passive: true });
  stage.addEventListener("keydown", stageKey, true);
  stage.addEventListener("wheel", (event) => {
    if (!scan || !event.ctrlKey) return;
    event.preventDefault();
    event.stopPropagation();
    zoom(event.deltaY < 0 ? 1.1 : 1 / 1.1);
  }, { capture: true, passive: false });
  for (const radio of document.querySelectorAll("input[name=tool]")) radio.addEventListener("change", toolChanged);
  byId("planes").onchange = () => { if (scan) showPlanes(); };
  byId("undo").onclick = undo;
  byId("redo").onclick = redo;
  byId("other").onclick = anotherAnswer;
  byId("new").onclick = () => { if (scan) { change(present); addSegment(); refresh(); say(`${current().name}.`); } };
  byId("opacity").oninput = (event) => { if (scan) nv.setOpacity(1, event.target.value / 100); };
  for (const button of document.querySelectorAll("[data-format]")) button.onclick = () => download(button.dataset.format);
  byId("find").onsubmit = (event) => {
    event.preventDefault();
    const name = byId("structure").value.trim();
    if (scan && name) find(name);
  };
  byId("stop").onclick = () => search.abort();
  byId("file").onchange = (event) => takeFile(event.target.files[0]);
  stage.addEventListener("dragover", (event) => event.preventDefault());
  stage.addEventListener("drop", (event) => { event.preventDefault(); takeFile(event.dataTransfer.files[0]); });
  byId("door").oncancel = (event) => event.preventDefault();
  byId("door").querySelector("form").onsubmit = (event) => {
    event.preventDefault();
    token = byId("code").value.trim();
    byId("code").value = "";
    enter();
  };
  document.addEventListener("keydown", (event) => {
    const isText = event.target.matches?.("input[type=text], input[type=password], #structure");
    if (!(event.ctrlKey || event.metaKey) || isText) return;
    const key = event.key.toLowerCase();
    if (key === "z" || key === "y") event.preventDefault(), key === "y" || event.shiftKey ? redo() : undo();
  });
  window.addEventListener("beforeunload", (event) => { if (isUnsaved()) event.preventDefault(); });
  // A page kept for the Back button is not released; it reopens an expired session when needed.
  window.addEventListener("pagehide", (event) => { if (!event.persisted) endSession({ keepalive: true }); });
  setInterval(() => { if (lease) call("/heartbeat").catch(() => {}); }, HEARTBEAT_MS);
  if (token) await enter();
  else askForToken();
}

start();
