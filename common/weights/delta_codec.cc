#include "common/weights/delta_codec.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/weights/bit_stream.h"
#include "common/weights/change_mask.h"
#include "common/weights/delta_block.h"

namespace tandem::weights {
namespace {

// See delta_format.md.
constexpr uint32_t kMagic = 0x31444E54;  // "TND1"

enum Codec : uint8_t { kDense = 1, kGaps = 2 };

struct Header {
  uint32_t magic;
  uint8_t codec;
  uint8_t element_size;
  uint16_t zero;
  uint64_t elements;
  uint64_t changed;
  uint64_t payload_bytes;
};
static_assert(sizeof(Header) == kDeltaHeaderBytes && std::is_trivially_copyable_v<Header>);

DeltaStats StatsOf(const Header& header) {
  DeltaStats stats;
  stats.coded_bytes = kDeltaHeaderBytes + static_cast<int64_t>(header.payload_bytes);
  stats.elements = static_cast<int64_t>(header.elements);
  stats.changed = static_cast<int64_t>(header.changed);
  stats.dense = header.codec == kDense;
  return stats;
}

template <typename T>
T Load(const std::byte* elements, int64_t i) {
  T value;
  std::memcpy(&value, elements + i * sizeof(T), sizeof(T));
  return value;
}

// Codes into `payload` while that is the smaller form; counts to the end in any case.
template <typename T>
Header Encode(const std::byte* base, const std::byte* next, int64_t elements, std::byte* payload) {
  // 4096 elements: when their differences are taken, the core's cache still has them.
  constexpr int64_t kMaskWords = 64;
  // If nearly everything changes, coding takes longer than sending: ten nanoseconds per change.
  constexpr int64_t kLeastSeen = int64_t{1} << 16;
  const int64_t size_bytes = elements * static_cast<int64_t>(sizeof(T));
  // A code that gets this long is given up for the plain bytes; Put() stores a little behind its
  // end.
  const int64_t max_bits = std::max<int64_t>(size_bytes - BitWriter::kSlackBytes, 0) * 8;
  BitWriter writer(payload);
  DeltaBlock block;
  bool dense = false;
  int64_t changed = 0;
  int64_t after_last = 0;  // the element behind the last change
  uint64_t mask[kMaskWords];
  for (int64_t begin = 0; begin < elements; begin += kMaskWords * 64) {
    const int64_t count = std::min(kMaskWords * 64, elements - begin);
    FindChanges(base + begin * sizeof(T), next + begin * sizeof(T), count, sizeof(T), mask);
    for (int64_t word = 0; word * 64 < count; ++word) {
      changed += std::popcount(mask[word]);
      if (dense) continue;
      const int64_t seen = begin + word * 64;
      dense = seen >= kLeastSeen && changed > seen / 4 * 3;
      for (uint64_t bits = mask[word]; bits != 0; bits &= bits - 1) {
        const int64_t i = begin + word * 64 + std::countr_zero(bits);
        block.gaps[block.count] = i - after_last;
        block.differences[block.count] =
            static_cast<std::make_signed_t<T>>(Load<T>(next, i) - Load<T>(base, i));
        after_last = i + 1;
        if (++block.count < kDeltaBlockChanges) continue;
        dense = dense || !EncodeDeltaBlock(block, max_bits, writer);
        block.count = 0;
      }
    }
  }
  if (!dense && block.count > 0) dense = !EncodeDeltaBlock(block, max_bits, writer);
  if (dense && size_bytes > 0) std::memcpy(payload, next, size_bytes);
  Header header{};
  header.magic = kMagic;
  header.codec = dense ? kDense : kGaps;
  header.element_size = sizeof(T);
  header.elements = elements;
  header.changed = changed;
  header.payload_bytes = dense ? size_bytes : writer.size_bytes();
  return header;
}

absl::StatusOr<Header> ReadHeader(absl::Span<const std::byte> coded, int64_t buffer_bytes) {
  Header header;
  if (coded.size() < sizeof(header)) {
    return absl::DataLossError(absl::StrCat("delta: expected a header of ", sizeof(header),
                                            " bytes, found ", coded.size(), " bytes"));
  }
  std::memcpy(&header, coded.data(), sizeof(header));
  const auto wrong = [](absl::string_view field, const auto& expected, auto found) {
    return absl::InvalidArgumentError(
        absl::StrCat("delta: header: ", field, ": expected ", expected, ", found ", found));
  };
  if (header.magic != kMagic) {
    return wrong("magic", absl::StrCat("0x", absl::Hex(kMagic)),
                 absl::StrCat("0x", absl::Hex(header.magic)));
  }
  if (header.codec != kDense && header.codec != kGaps) {
    return wrong("codec", "1 (dense) or 2 (gaps)", int{header.codec});
  }
  if (header.element_size != 2 && header.element_size != 4) {
    return wrong("element size", "2 or 4 bytes", int{header.element_size});
  }
  if (header.zero != 0) return wrong("bytes 6 and 7", "0", header.zero);
  if (buffer_bytes % header.element_size != 0 ||
      header.elements != static_cast<uint64_t>(buffer_bytes / header.element_size)) {
    return wrong(
        "elements",
        absl::StrCat("those of ", buffer_bytes, " bytes in elements of ", int{header.element_size}),
        header.elements);
  }
  if (header.changed > header.elements) {
    return wrong("changed elements", absl::StrCat("at most ", header.elements), header.changed);
  }
  if (header.codec == kDense && header.payload_bytes != static_cast<uint64_t>(buffer_bytes)) {
    return wrong("payload of a dense delta", absl::StrCat(buffer_bytes, " bytes"),
                 header.payload_bytes);
  }
  if (header.payload_bytes != coded.size() - sizeof(header)) {
    return absl::DataLossError(absl::StrCat("delta: expected a payload of ", header.payload_bytes,
                                            " bytes, as stated in the header, found ",
                                            coded.size() - sizeof(header)));
  }
  return header;
}

template <typename T>
absl::Status Apply(int64_t changed, absl::Span<const std::byte> payload, int64_t elements,
                   std::byte* buffer) {
  BitReader reader(payload);
  DeltaBlock block;
  int64_t next = 0;  // the element behind the last change
  for (int64_t done = 0; done < changed; done += block.count) {
    const auto place = [&, bit = reader.bits()] {
      return absl::StrCat("delta: changes starting at number ", done, " of ", changed, ", at bit ",
                          bit, " of the payload: ");
    };
    block.count = static_cast<int>(std::min<int64_t>(kDeltaBlockChanges, changed - done));
    const absl::Status status = DecodeDeltaBlock(sizeof(T), reader, block);
    if (reader.overrun()) {
      return absl::DataLossError(absl::StrCat(place(), "expected ", block.count,
                                              " changes, found the end of the payload, ",
                                              payload.size(), " bytes"));
    }
    if (!status.ok()) return absl::DataLossError(absl::StrCat(place(), status.message()));
    // The sum is less than 2^57 + 2^47, so it cannot overflow, and every change lies before the
    // last one: this check keeps damaged code from writing outside the buffer.
    uint64_t end = next;
    for (int i = 0; i < block.count; ++i) end += block.gaps[i] + 1;
    if (end > static_cast<uint64_t>(elements)) {
      return absl::DataLossError(absl::StrCat(place(), "expected changes of ", elements,
                                              " elements, found one of element ", end - 1));
    }
    for (int i = 0; i < block.count; ++i) {
      next += static_cast<int64_t>(block.gaps[i]);
      const T value = static_cast<T>(Load<T>(buffer, next) + static_cast<T>(block.differences[i]));
      std::memcpy(buffer + next * sizeof(T), &value, sizeof(T));
      ++next;
    }
  }
  if (!reader.AtEnd()) {
    return absl::DataLossError(absl::StrCat("delta: expected the last of ", changed,
                                            " changes and zeros at the end of the payload, byte ",
                                            payload.size(), ", found it at bit ", reader.bits()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<DeltaStats> EncodeDelta(absl::Span<const std::byte> base,
                                       absl::Span<const std::byte> next, int element_size,
                                       absl::Span<std::byte> out) {
  if (element_size != 2 && element_size != 4) {
    return absl::InvalidArgumentError(
        absl::StrCat("delta: element size: expected 2 or 4 bytes, found ", element_size));
  }
  if (base.size() != next.size() || base.size() % element_size != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("delta: expected two buffers of as many whole elements of ", element_size,
                     " bytes, found ", base.size(), " and ", next.size(), " bytes"));
  }
  const int64_t room = MaxEncodedBytes(next.size());
  if (static_cast<int64_t>(out.size()) < room) {
    return absl::InvalidArgumentError(
        absl::StrCat("delta: expected room for ", room, " bytes, found ", out.size()));
  }
  const int64_t elements = static_cast<int64_t>(next.size()) / element_size;
  std::byte* const payload = out.data() + kDeltaHeaderBytes;
  const Header header = element_size == 2
                            ? Encode<uint16_t>(base.data(), next.data(), elements, payload)
                            : Encode<uint32_t>(base.data(), next.data(), elements, payload);
  std::memcpy(out.data(), &header, sizeof(header));
  return StatsOf(header);
}

absl::StatusOr<DeltaStats> ApplyDelta(absl::Span<const std::byte> coded,
                                      absl::Span<std::byte> buffer) {
  ASSIGN_OR_RETURN(const Header header, ReadHeader(coded, buffer.size()));
  const auto payload = coded.subspan(kDeltaHeaderBytes);
  const DeltaStats stats = StatsOf(header);
  if (header.codec == kDense) {
    if (!payload.empty()) std::memcpy(buffer.data(), payload.data(), payload.size());
  } else if (header.element_size == 2) {
    RETURN_IF_ERROR(Apply<uint16_t>(stats.changed, payload, stats.elements, buffer.data()));
  } else {
    RETURN_IF_ERROR(Apply<uint32_t>(stats.changed, payload, stats.elements, buffer.data()));
  }
  return stats;
}

}  // namespace tandem::weights
