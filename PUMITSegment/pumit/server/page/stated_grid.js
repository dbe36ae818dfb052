"use strict";
// The grid that the header of a NIfTI, NRRD or MetaImage file states, as ITK reads it, and so Slicer and PUMIT.
// NiiVue reads some headers in another way; the page compares the two grids before it shows a file.
// A grid: dims, steps from a voxel to the next along each axis, and origin, LPS mm; isPlaced tells whether the
// header says where the axes point to. It is null if the header is unknown, or if NiiVue would misread the voxels.

const HEADER_BYTES = 1 << 20;

async function statedGrid(file) {
  const bytes = await firstBytes(file), text = new TextDecoder("latin1").decode(bytes);
  if (text.startsWith("NRRD000")) return gridOfNrrd(text);
  if (/^\s*(ObjectType|NDims|Comment)/.test(text)) return gridOfMetaImage(text);
  const isNifti = bytes.length >= 348 && [348, 540].some((n) => [true, false].some((little) => viewOf(bytes).getInt32(0, little) === n));
  return isNifti ? gridOfNifti(viewOf(bytes)) : null;
}

const viewOf = (bytes) => new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);

async function firstBytes(file) {
  const start = new Uint8Array(await file.slice(0, HEADER_BYTES).arrayBuffer());
  if (start[0] !== 0x1f || start[1] !== 0x8b) return start;
  const reader = file.stream().pipeThrough(new DecompressionStream("gzip")).getReader();
  let bytes = new Uint8Array(0);
  while (bytes.length < 544) {
    const { value, done } = await reader.read();
    if (done) break;
    const longer = new Uint8Array(bytes.length + value.length);
    longer.set(bytes), longer.set(value, bytes.length);
    bytes = longer;
  }
  reader.cancel().catch(() => {});
  return bytes;
}

const isAll = (values, count) => values.length === count && values.every(Number.isFinite);
const numbersOf = (text) => (text ?? "").replace(/[(),]/g, " ").split(/\s+/).filter(Boolean).map(Number);
const inThrees = (values) => [0, 3, 6].map((at) => values.slice(at, at + 3));
const alongAxes = (spacing) => spacing.map((s, axis) => [0, 1, 2].map((i) => (i === axis ? s : 0)));

function gridOfNifti(view) {
  const little = view.getUint8(0) === 348 % 256 || view.getUint8(0) === 540 % 256;
  const isFirst = view.getInt32(0, little) === 348;
  if (!isFirst && view.byteLength < 540) return null;
  const short = (at, at2) => (isFirst ? view.getInt16(at, little) : at2 < 344 ? Number(view.getBigInt64(at2, little)) : view.getInt32(at2, little));
  const real = (at, at2, n) => Array.from({ length: n }, (_, i) => (isFirst ? view.getFloat32(at + 4 * i, little) : view.getFloat64(at2 + 8 * i, little)));
  const axes = short(40, 16);
  const dims = [1, 2, 3].map((i) => (i <= axes ? Math.max(short(40 + 2 * i, 16 + 8 * i), 1) : 1));
  const scale = { 1: 1000, 3: 0.001 }[(isFirst ? view.getUint8(123) : view.getInt32(500, little)) & 7] ?? 1;
  const [side, ...sizes] = real(76, 104, 4);
  if (sizes.some((s, axis) => dims[axis] > 1 && !(s > 0))) return null; // PUMIT refuses these, too
  const spacing = sizes.map((s) => Math.abs(s) || 1);
  const qformCode = short(252, 344), sformCode = short(254, 348), sform = real(280, 400, 12);
  const isSform = sformCode > 0 && isAll(sform, 12) && sform.some((v, i) => i % 4 < 3 && v);
  let axesRas, originRas;
  if (isSform && (qformCode <= 0 || sformCode === 1)) {
    // ITK takes directions from the sform, and the spacing from elsewhere.
    axesRas = [0, 1, 2].map((c) => [0, 1, 2].map((r) => sform[4 * r + c]));
    axesRas = axesRas.map((v) => v.map((x) => x / Math.hypot(...v)));
    originRas = [3, 7, 11].map((i) => sform[i]);
  } else if (qformCode > 0) {
    let [b, c, d, ...offset] = real(256, 352, 6);
    const rest = 1 - (b * b + c * c + d * d), length = Math.hypot(b, c, d);
    if (rest < 1e-7) [b, c, d] = [b / length, c / length, d / length];
    const a = rest < 1e-7 ? 0 : Math.sqrt(rest), k = side < 0 ? -1 : 1;
    axesRas = [
      [a * a + b * b - c * c - d * d, 2 * (b * c + a * d), 2 * (b * d - a * c)],
      [2 * (b * c - a * d), a * a + c * c - b * b - d * d, 2 * (c * d + a * b)],
      [k * 2 * (b * d + a * c), k * 2 * (c * d - a * b), k * (a * a + d * d - b * b - c * c)],
    ];
    originRas = offset;
  } else if (sformCode > 0) return null;
  const isPlaced = Boolean(axesRas);
  const toLps = (v) => [-v[0], -v[1], v[2]].map((x) => x * scale);
  const steps = isPlaced ? axesRas.map((v, axis) => toLps(v).map((x) => x * spacing[axis])) : alongAxes(spacing.map((s) => s * scale));
  return { dims, steps, origin: isPlaced ? toLps(originRas) : [0, 0, 0], isPlaced };
}

function gridOfNrrd(text) {
  const fields = {};
  for (const line of text.split(/\r?\n/)) {
    if (!line) break;
    const found = /^([^:#]+):(?!=)\s*(.*)$/.exec(line);
    if (found) fields[found[1].toLowerCase().replace(/\s/g, "")] = found[2].trim();
  }
  const kinds = (fields.kinds ?? "").split(/\s+/).filter(Boolean), dims = numbersOf(fields.sizes);
  const isMisread = kinds.some((kind) => !["domain", "space"].includes(kind.toLowerCase())) || fields.axismins || fields.axismaxs
    || [fields.lineskip, fields.byteskip].some((n) => Number(n ?? 0) !== 0);
  if (isMisread || !isAll(dims, 3) || Number(fields.dimension) !== 3) return null;
  if (!fields.spacedirections) {
    const spacing = fields.spacings ? numbersOf(fields.spacings) : [1, 1, 1];
    return fields.space || fields.spaceorigin || !isAll(spacing, 3) ? null : { dims, steps: alongAxes(spacing), origin: [0, 0, 0], isPlaced: false };
  }
  // ITK takes any other space for LPS.
  const signs = {
    ras: [-1, -1, 1], "right-anterior-superior": [-1, -1, 1], las: [1, -1, 1], "left-anterior-superior": [1, -1, 1],
  }[(fields.space ?? "").toLowerCase()] ?? [1, 1, 1];
  const directions = numbersOf(fields.spacedirections), origin = fields.spaceorigin ? numbersOf(fields.spaceorigin) : [0, 0, 0];
  if (!isAll(directions, 9) || !isAll(origin, 3)) return null;
  const toLps = (v) => v.map((x, i) => x * signs[i]);
  return { dims, steps: inThrees(directions).map(toLps), origin: toLps(origin), isPlaced: true };
}

function gridOfMetaImage(text) {
  const fields = {};
  for (const line of text.split(/\r?\n/)) {
    const found = /^\s*(\w+)\s*[=:]\s*(.*)$/.exec(line);
    if (found) fields[found[1]] = found[2].trim();
    if (found?.[1] === "ElementDataFile") break;
  }
  const oneOf = (...names) => names.filter((name) => name in fields).map((name) => numbersOf(fields[name]));
  const matrices = oneOf("TransformMatrix", "Rotation", "Orientation"), origins = oneOf("Offset", "Position", "Origin");
  // NiiVue looks only for the word True, and reads text as numbers.
  const isTrue = (value) => /^[t1]/i.test(value ?? ""), isOther = (value, seen) => isTrue(value) !== Boolean(seen?.includes("True"));
  const isMisread = matrices.length > 1 || origins.length > 1 || Number(fields.HeaderSize ?? 0) !== 0
    || Number(fields.ElementNumberOfChannels ?? 1) !== 1 || !isTrue(fields.BinaryData ?? "True") || isOther(fields.CompressedData, fields.CompressedData)
    || isOther(fields.BinaryDataByteOrderMSB ?? fields.ElementByteOrderMSB, fields.BinaryDataByteOrderMSB);
  const dims = numbersOf(fields.DimSize), [matrix = [1, 0, 0, 0, 1, 0, 0, 0, 1]] = matrices, [origin = [0, 0, 0]] = origins;
  const [spacing = [1, 1, 1]] = oneOf("ElementSpacing", "ElementSize");
  if (isMisread || Number(fields.NDims) !== 3 || !isAll(dims, 3) || !isAll(matrix, 9) || !isAll(origin, 3) || !isAll(spacing, 3)) return null;
  const steps = inThrees(matrix).map((v, axis) => v.map((x) => x * spacing[axis]));
  return { dims, steps, origin, isPlaced: matrices.length > 0 };
}
