"""Small image files of every kind that common/images reads, by name: what image_golden.py writes and decodes.

Pillow writes most. PNG has variants that it does not write (interlaced, 2 and 4 bits, 16 bits with alpha, color keys),
so those are put together here.
"""
import io
import struct
import zlib

import numpy as np
from PIL import Image

PASSES = [(0, 0, 8, 8), (0, 4, 8, 8), (4, 0, 8, 4), (0, 2, 4, 4), (2, 0, 4, 2), (0, 1, 2, 2), (1, 0, 2, 1)]
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # of a pixel, by color type


def picture(height, width, seed, channels=3):
    """Waves, a checkerboard, ramps and noise: edges and flat parts, every channel different."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    planes = [127 + 120 * np.sin(x / 9 + y / 17 + seed), 255.0 * ((x // 7 + y // 5) % 2), x * 255 / width, 255 - y * 255 / height]
    planes = np.stack(planes, -1)[..., :channels] + rng.normal(0, 9, (height, width, channels))
    return planes.clip(0, 255).astype(np.uint8)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(samples, bits, color_type, interlaced=False, before=(), after=()):
    """samples: [height, width, n] of unsigned integers of `bits` bits; before, after: chunks around the pixels."""
    height, width, _ = samples.shape
    raw = b""
    for row, column, dy, dx in PASSES if interlaced else [(0, 0, 1, 1)]:
        part = samples[row::dy, column::dx]
        if 0 in part.shape:
            continue
        for i, line in enumerate(part.reshape(part.shape[0], -1)):
            if bits == 16:
                data = line.astype(">u2").tobytes()
            elif bits == 8:
                data = line.astype(np.uint8).tobytes()
            else:
                digits = "".join(format(v, f"0{bits}b") for v in line)
                digits += "0" * (-len(digits) % 8)
                data = int(digits, 2).to_bytes(len(digits) // 8, "big")
            if i % 2:  # rows take turns: no filter, then the difference to the pixel on the left
                step = max(1, SAMPLES[color_type] * bits // 8)
                data = bytes((b - (data[k - step] if k >= step else 0)) % 256 for k, b in enumerate(data))
            raw += bytes([i % 2]) + data
    header = struct.pack(">IIBBBBB", width, height, bits, color_type, 0, 0, int(interlaced))
    chunks = [chunk(b"IHDR", header), *before]
    packed = zlib.compress(raw)
    half = len(packed) // 2
    chunks += [chunk(b"IDAT", packed[:half]), chunk(b"IDAT", packed[half:]), *after, chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def random_samples(bits, color_type, seed, height=11, width=19):
    n = SAMPLES[color_type]
    if bits == 16:
        low = np.random.default_rng(seed).integers(0, 256, (height, width, n))
        return picture(height, width, seed, 4)[..., :n].astype(np.int64) * 256 + low
    return picture(height, width, seed, 4)[..., :n].astype(np.int64) >> (8 - bits)


def saved(image, form, **options):
    out = io.BytesIO()
    image.save(out, form, **options)
    return out.getvalue()


def exif(orientation, big_endian=False):
    order = ">" if big_endian else "<"
    head = b"MM\0*" if big_endian else b"II*\0"
    entry = struct.pack(order + "HHI", 0x0112, 3, 1) + struct.pack(order + "HH", orientation, 0)
    return head + struct.pack(order + "IH", 8, 1) + entry + struct.pack(order + "I", 0)


def xmp(orientation):
    return f'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'.encode()


def png_files():
    kinds = [(b, 0) for b in (1, 2, 4, 8, 16)] + [(b, 3) for b in (1, 2, 4, 8)] + [(b, t) for t in (2, 4, 6) for b in (8, 16)]
    palette = chunk(b"PLTE", np.random.default_rng(5).integers(0, 256, 256 * 3, dtype=np.uint8).tobytes())
    for bits, color_type in kinds:
        for interlaced in (False, True):
            before = [chunk(b"PLTE", palette[8:8 + 3 * 2**bits])] if color_type == 3 else []
            samples = random_samples(bits, color_type, bits + color_type)
            yield f"png_{color_type}_{bits}{'_interlaced' if interlaced else ''}.png", png(samples, bits, color_type, interlaced, before)
    alphas = chunk(b"tRNS", bytes(range(0, 256, 17)))
    small = chunk(b"PLTE", palette[8:8 + 3 * 16])
    yield "png_palette_alpha.png", png(random_samples(4, 3, 3), 4, 3, before=[small, alphas])
    yield "png_palette_clear.png", png(random_samples(4, 3, 3), 4, 3, before=[small, chunk(b"tRNS", b"\xff\xff\0")])
    grey, color = random_samples(8, 0, 9), random_samples(8, 2, 9)
    yield "png_grey_key.png", png(grey, 8, 0, before=[chunk(b"tRNS", struct.pack(">H", grey[0, 0, 0]))])
    yield "png_color_key.png", png(color, 8, 2, before=[chunk(b"tRNS", struct.pack(">HHH", *color[3, 2]))])
    yield "png_one_pixel.png", png(random_samples(8, 2, 1, 1, 1), 8, 2)
    yield "png_interlaced_tiny.png", png(random_samples(8, 2, 1, 3, 2), 8, 2, True)
    yield "png_exif.png", png(color, 8, 2, before=[chunk(b"eXIf", exif(6, True))])
    yield "png_exif_after.png", png(color, 8, 2, after=[chunk(b"eXIf", exif(8))])
    yield "png_xmp.png", png(color, 8, 2, before=[chunk(b"iTXt", b"XML:com.adobe.xmp\0\0\0\0\0" + xmp(3))])


def jpeg_files():
    image = Image.fromarray(picture(27, 35, 2))
    for name, options in {
        "444": dict(subsampling=0), "422": dict(subsampling=1), "420": dict(subsampling=2), "best": dict(quality=100, subsampling=0),
        "worst": dict(quality=5), "progressive": dict(progressive=True), "progressive_444": dict(progressive=True, subsampling=0),
        "optimized": dict(optimize=True), "restarts": dict(restart_marker_blocks=2), "rgb": dict(keep_rgb=True),
    }.items():
        yield f"jpeg_{name}.jpg", saved(image, "JPEG", **options)
    for mode in ("L", "CMYK"):
        yield f"jpeg_{mode.lower()}.jpg", saved(Image.fromarray(picture(27, 35, 2, 4)).convert("RGB").convert(mode), "JPEG")
    yield "jpeg_cmyk_any.jpg", saved(Image.fromarray(picture(19, 22, 3, 4), "CMYK"), "JPEG", subsampling=0)
    yield "jpeg_cmyk_progressive.jpg", saved(Image.fromarray(picture(19, 22, 3, 4), "CMYK"), "JPEG", progressive=True)
    yield "jpeg_one_pixel.jpg", saved(Image.fromarray(picture(1, 1, 2)), "JPEG")
    yield "jpeg_wide.jpg", saved(Image.fromarray(picture(1, 50, 2)), "JPEG")
    small = Image.fromarray(picture(10, 14, 4))
    for orientation in range(10):
        yield f"jpeg_exif_{orientation}.jpg", saved(small, "JPEG", exif=b"Exif\0\0" + exif(orientation, orientation % 2 == 0))
    yield "jpeg_xmp.jpg", saved(small, "JPEG", xmp=xmp(7))
    yield "jpeg_exif_and_xmp.jpg", saved(small, "JPEG", exif=b"Exif\0\0" + exif(5), xmp=xmp(2))
    yield "jpeg_trailing.jpg", saved(small, "JPEG") + b"trailing bytes"


def webp_files():
    image, alpha = Image.fromarray(picture(27, 35, 6)), Image.fromarray(picture(27, 35, 6, 4), "RGBA")
    yield "webp_lossy.webp", saved(image, "WEBP", quality=70)
    yield "webp_lossless.webp", saved(image, "WEBP", lossless=True)
    yield "webp_alpha.webp", saved(alpha, "WEBP", quality=70)
    yield "webp_alpha_lossless.webp", saved(alpha, "WEBP", lossless=True, exact=True)
    yield "webp_exif.webp", saved(image, "WEBP", quality=40, exif=b"Exif\0\0" + exif(6))
    yield "webp_xmp.webp", saved(image, "WEBP", quality=40, xmp=xmp(4))
    yield "webp_one_pixel.webp", saved(Image.fromarray(picture(1, 1, 2)), "WEBP")


def files():
    yield from png_files()
    yield from jpeg_files()
    yield from webp_files()
