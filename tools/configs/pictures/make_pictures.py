"""Pictures and questions about them, parted so that no picture is both trained and tested on.

usage: make_pictures.py FOLDER   draws FOLDER/pictures/*.png, 32 x 32 pixels, and writes rows
  {"prompt": [a user's message with an image part and a question], "images": [path], "answer"} into
  train.jsonl, test.jsonl   right answers; GRPO is rewarded on the first and measured on the second
  warmup.jsonl              train.jsonl's pictures as a careless teacher sees them: half of the time
                            one disc of several, and the second digit of a number, is overlooked

The questions: how many discs (1 to 5), which colour they have, which number is written (10 to 99).
"""
import json
import pathlib
import random
import struct
import sys
import zlib

SIDE = 32
NUM_TRAIN, NUM_TEST = 6000, 240
COLOURS = {"red": (220, 40, 40), "green": (40, 180, 60), "blue": (50, 80, 230), "yellow": (230, 210, 50)}
OVERLOOKED = 0.5
DIGITS = ["111101101101111", "010110010010111", "111001111100111", "111001111001111", "101101111001001",
          "111100111001111", "111100111101111", "111001010010010", "111101111101111", "111101111001111"]
DIGIT_COLUMNS, DIGIT_SCALE, DIGIT_LEFT, DIGIT_TOP = 3, 4, 2, 6
CELLS, CELL_SIDE = 4, 8  # a disc fills a cell of a grid


def png(pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in pixels)
    header = struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def empty_picture():
    shade = draw.randrange(60)
    return [[(shade, shade, shade)] * SIDE for _ in range(SIDE)]


def draw_discs(count, colour):
    pixels = empty_picture()
    for cell in draw.sample(range(CELLS * CELLS), count):
        radius = draw.uniform(2.5, 3.5)
        a = cell % CELLS * CELL_SIDE + CELL_SIDE / 2 + draw.uniform(-0.5, 0.5)
        b = cell // CELLS * CELL_SIDE + CELL_SIDE / 2 + draw.uniform(-0.5, 0.5)
        for y in range(SIDE):
            for x in range(SIDE):
                if (x + 0.5 - a) ** 2 + (y + 0.5 - b) ** 2 <= radius * radius:
                    pixels[y][x] = colour
    return pixels


def draw_number(number, colour):
    pixels = empty_picture()
    for place, digit in enumerate(str(number)):
        for i, bit in enumerate(DIGITS[int(digit)]):
            if bit == "0":
                continue
            x0 = place * SIDE // 2 + DIGIT_LEFT + DIGIT_SCALE * (i % DIGIT_COLUMNS)
            y0 = DIGIT_TOP + DIGIT_SCALE * (i // DIGIT_COLUMNS)
            for y in range(y0, y0 + DIGIT_SCALE):
                pixels[y][x0:x0 + DIGIT_SCALE] = [colour] * DIGIT_SCALE
    return pixels


def problem():
    """Returns pixels, a question, the right answer, and a careless one."""
    name = draw.choice(list(COLOURS))
    kind = draw.randrange(3)
    overlooks = draw.random() < OVERLOOKED
    if kind == 2:
        number = draw.randrange(10, 100)
        return draw_number(number, COLOURS[name]), "which number?", str(number), str(number)[:1 if overlooks else 2]
    count = draw.randint(1, 5)
    pixels = draw_discs(count, COLOURS[name])
    if kind == 1:
        return pixels, "which colour?", name, name
    return pixels, "how many?", str(count), str(count - 1 if overlooks and count > 1 else count)


def row(image, question, answer):
    content = [{"type": "image"}, {"type": "text", "text": question}]
    return json.dumps({"prompt": [{"role": "user", "content": content}], "images": [image], "answer": answer})


def write(names, count, prefix):
    lines = {name: [] for name in names}
    for i in range(count):
        pixels, question, right, careless = problem()
        while prefix == "test" and png(pixels) in trained:
            pixels, question, right, careless = problem()
        image = f"pictures/{prefix}{i}.png"
        (folder / image).write_bytes(png(pixels))
        if prefix == "train":
            trained.add(png(pixels))
        for name in names:
            lines[name].append(row(image, question, careless if name == "warmup" else right))
    for name in names:
        (folder / f"{name}.jsonl").write_text("\n".join(lines[name]) + "\n")


folder = pathlib.Path(sys.argv[1])
(folder / "pictures").mkdir(parents=True, exist_ok=True)
draw = random.Random(0)
trained = set()
write(["train", "warmup"], NUM_TRAIN, "train")
write(["test"], NUM_TEST, "test")
