// The tiles of bfloat16 products, and the conversion of matrices to tiles: 16 rows of 64 bytes, the
// layout that AMX multiplies.
//
// A tile of the left side has row i of A in row i, 32 of k. A tile of the right side has in row r
// the elements 2r and 2r + 1 of k, side by side, for 16 columns. Seen as 16 x 16 words of two
// elements, each layout is the other's transpose; so a matrix can be read along k or across it, and
// words are transposed if the tile needs the other layout.
#ifndef TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_TILE_H_
#define TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_TILE_H_

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "common/model/kernels/packed_matrix.h"

// For functions called only if the CPU has the vectors, or also the tiles.
#define TANDEM_VECTORS __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define TANDEM_TILES \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace tandem::model::kernels::bfloat16 {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileDepth = 32;  // of k
constexpr int64_t kTileRowBytes = 64;
constexpr int64_t kTileBytes = kTileRows * kTileRowBytes;

// kNearest: the bfloat16 number nearest to a float32 number. kRest: the one nearest to the
// remainder.
enum class Part { kNearest, kRest };

using Words = __m512i[kTileRows];

TANDEM_VECTORS inline __mmask32 FirstOf32(int64_t count) {
  return count >= 32 ? ~__mmask32{0} : (__mmask32{1} << std::max<int64_t>(count, 0)) - 1;
}

// Bits of bfloat16 numbers, as float32.
TANDEM_VECTORS inline __m512 Widened(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

TANDEM_VECTORS inline __m512 Rounded(__m512 value) {
  return Widened((__m256i)_mm512_cvtneps_pbh(value));
}

// Loads 32 elements, zeros beyond `count`.
TANDEM_VECTORS inline __m512i LoadElements(const uint16_t* from, int64_t count, Part) {
  return _mm512_maskz_loadu_epi16(FirstOf32(count), from);
}

TANDEM_VECTORS inline __m512i LoadElements(const float* from, int64_t count, Part part) {
  const __mmask32 mask = FirstOf32(count);
  __m512 low = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask), from);
  __m512 high = _mm512_maskz_loadu_ps(static_cast<__mmask16>(mask >> 16), from + 16);
  if (part == Part::kRest) {
    low = _mm512_sub_ps(low, Rounded(low));
    high = _mm512_sub_ps(high, Rounded(high));
  }
  return (__m512i)_mm512_cvtne2ps_pbh(high, low);
}

// Word (i, c) holds the adjacent elements 2c and 2c + 1 of row i.
template <typename T>
TANDEM_VECTORS inline void ReadAlong(const T* from, int64_t stride, int64_t rows, int64_t depth,
                                     Part part, Words& words) {
  for (int64_t i = 0; i < kTileRows; ++i) {
    words[i] = i < rows ? LoadElements(from + i * stride, depth, part) : _mm512_setzero_si512();
  }
}

// Inverse of ReadAlong(); writes all rows.
TANDEM_VECTORS inline void WriteAlong(const Words& words, uint16_t* to, int64_t stride,
                                      int64_t depth) {
  const __mmask32 mask = FirstOf32(depth);
  for (int64_t i = 0; i < kTileRows; ++i) {
    _mm512_mask_storeu_epi16(to + i * stride, mask, words[i]);
  }
}

// Word (r, c) holds elements 2r and 2r + 1 of k, which are `stride` apart, of column c: columns [0,
// 16) in `words`, the next 16 in `next_words`.
template <typename T>
TANDEM_VECTORS inline void ReadAcross(const T* from, int64_t stride, int64_t columns, int64_t depth,
                                      Part part, Words& words, Words& next_words) {
  const __m512i order = _mm512_set_epi16(47, 15, 46, 14, 45, 13, 44, 12, 43, 11, 42, 10, 41, 9, 40,
                                         8, 39, 7, 38, 6, 37, 5, 36, 4, 35, 3, 34, 2, 33, 1, 32, 0);
  const __m512i next_order = _mm512_add_epi16(order, _mm512_set1_epi16(16));
  for (int64_t r = 0; r < kTileRows; ++r) {
    const auto load = [&](int64_t k) TANDEM_VECTORS {
      return k < depth ? LoadElements(from + k * stride, columns, part) : _mm512_setzero_si512();
    };
    const __m512i even = load(2 * r);
    const __m512i odd = load(2 * r + 1);
    words[r] = _mm512_permutex2var_epi16(even, order, odd);
    next_words[r] = _mm512_permutex2var_epi16(even, next_order, odd);
  }
}

TANDEM_VECTORS inline void Transpose(Words& words) {
  Words pairs;
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_epi32(words[i], words[i + 1]);
    pairs[i + 1] = _mm512_unpackhi_epi32(words[i], words[i + 1]);
  }
  Words quads;
  for (int i = 0; i < 16; i += 4) {
    quads[i] = _mm512_unpacklo_epi64(pairs[i], pairs[i + 2]);
    quads[i + 1] = _mm512_unpackhi_epi64(pairs[i], pairs[i + 2]);
    quads[i + 2] = _mm512_unpacklo_epi64(pairs[i + 1], pairs[i + 3]);
    quads[i + 3] = _mm512_unpackhi_epi64(pairs[i + 1], pairs[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    const __m512i a = _mm512_shuffle_i32x4(quads[i], quads[i + 4], 0x88);
    const __m512i b = _mm512_shuffle_i32x4(quads[i + 8], quads[i + 12], 0x88);
    const __m512i c = _mm512_shuffle_i32x4(quads[i], quads[i + 4], 0xdd);
    const __m512i d = _mm512_shuffle_i32x4(quads[i + 8], quads[i + 12], 0xdd);
    words[i] = _mm512_shuffle_i32x4(a, b, 0x88);
    words[i + 4] = _mm512_shuffle_i32x4(c, d, 0x88);
    words[i + 8] = _mm512_shuffle_i32x4(a, b, 0xdd);
    words[i + 12] = _mm512_shuffle_i32x4(c, d, 0xdd);
  }
}

TANDEM_VECTORS inline void Load(const char* from, Words& words) {
  for (int64_t i = 0; i < kTileRows; ++i) words[i] = _mm512_load_si512(from + i * kTileRowBytes);
}

TANDEM_VECTORS inline void Store(const Words& words, char* to) {
  for (int64_t i = 0; i < kTileRows; ++i) _mm512_store_si512(to + i * kTileRowBytes, words[i]);
}

// Non-temporal store, for data that is not read soon.
TANDEM_VECTORS inline void StoreFar(const Words& words, char* to) {
  for (int64_t i = 0; i < kTileRows; ++i) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(to + i * kTileRowBytes), words[i]);
  }
}

}  // namespace tandem::model::kernels::bfloat16

#endif  // defined(__x86_64__)

#endif  // TANDEM_COMMON_MODEL_KERNELS_BFLOAT16_TILE_H_
