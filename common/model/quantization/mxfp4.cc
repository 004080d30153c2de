#include "common/model/quantization/mxfp4.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/io/release_pages.h"
#include "common/model/quantization/power_of_two.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

constexpr int64_t kGroup = 32;  // elements that share a scale
constexpr int64_t kGroupBytes = kGroup / 2;

// float4_e2m1fn: a sign, two bits of exponent, one of mantissa.
constexpr std::array<float, 16> kE2M1 = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                         -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

class Mxfp4Tensor : public QuantizedTensor {
 public:
  // `shape`: [experts, in, out].
  Mxfp4Tensor(io::TensorView blocks, io::TensorView scales, std::string file,
              const std::vector<int64_t>& shape)
      : blocks_(std::move(blocks)),
        scales_(std::move(scales)),
        file_(std::move(file)),
        in_(shape[1]),
        out_(shape[2]) {}

  absl::Status Read(int64_t first, int64_t count, int64_t stride, float* out) const override {
    // Loading walks along the stored rows: from one `in` to another of the same `out`.
    const bool along_rows = stride % out_ == 0;
    const int64_t step = along_rows ? stride / out_ : 1;
    const auto* const scales = reinterpret_cast<const uint8_t*>(scales_.bytes.data());
    const auto* const blocks = reinterpret_cast<const uint8_t*>(blocks_.bytes.data());
    for (int64_t done = 0; done < count;) {
      const int64_t at = first + done * stride;
      const int64_t matrix_row = at / out_;  // [experts * in]
      const int64_t expert = matrix_row / in_;
      const int64_t row = expert * out_ + (at - matrix_row * out_);
      const int64_t column = matrix_row - expert * in_;
      const int64_t group = row * (in_ / kGroup) + column / kGroup;
      const int64_t begin = column % kGroup;
      const int64_t left = along_rows ? (kGroup - begin + step - 1) / step : 1;
      const int64_t n = std::min(left, count - done);
      const uint8_t exponent = scales[group];
      if (exponent == kE8M0NaN) return NotAScale(group);
      const float scale = kE8M0[exponent];
      const uint8_t* const block = blocks + group * kGroupBytes;
      for (int64_t i = 0; i < n; ++i) {
        const int64_t element = begin + i * step;
        const int pair = block[element / 2];
        out[done + i] =
            kE2M1[static_cast<size_t>(element % 2 == 0 ? pair & 15 : pair >> 4)] * scale;
      }
      done += n;
    }
    return absl::OkStatus();
  }

  void ReleasePages() const override {
    io::ReleasePages(blocks_.bytes);
    io::ReleasePages(scales_.bytes);
  }

 private:
  absl::Status NotAScale(int64_t index) const {
    return absl::DataLossError(
        absl::StrCat(file_, ": tensor ", scales_.name, ": element ", index, " is ", int{kE8M0NaN},
                     ", which is NaN; expected the exponent of a scale: copy or download the file "
                     "again"));
  }

  io::TensorView blocks_;
  io::TensorView scales_;
  std::string file_;  // of the scales
  int64_t in_;
  int64_t out_;
};

class Mxfp4Quantization : public Quantization {
 public:
  absl::string_view method() const override { return "mxfp4"; }

  std::vector<StoredPart> PartsOf(const io::ModelFolder& folder, const std::string& name,
                                  const std::vector<int64_t>& shape) const override {
    const std::string blocks = absl::StrCat(name, "_blocks");
    const std::string scales = absl::StrCat(name, "_scales");
    if (folder.Contains(name) || !(folder.Contains(blocks) || folder.Contains(scales))) return {};
    std::vector<int64_t> groups = shape;
    if (shape.size() >= 2) {
      std::swap(groups[shape.size() - 2], groups.back());
      groups.back() = (groups.back() + kGroup - 1) / kGroup;
    }
    StoredPart of_blocks{blocks, groups};
    of_blocks.shape.push_back(kGroupBytes);
    return {std::move(of_blocks), {scales, std::move(groups)}};
  }

  absl::StatusOr<std::shared_ptr<const QuantizedTensor>> Open(
      const io::ModelFolder& folder, const std::string& name,
      const std::vector<int64_t>& shape) const override {
    if (shape.size() != 3 || shape[1] % kGroup != 0) {
      return absl::UnimplementedError(
          absl::StrCat(folder.path(), ": tensor ", name, ", [", absl::StrJoin(shape, ", "),
                       "], is stored in mxfp4; expected [experts, in, out] with a multiple of ",
                       kGroup, " for in"));
    }
    const std::vector<StoredPart> parts = PartsOf(folder, name, shape);
    if (parts.empty()) {
      return absl::NotFoundError(absl::StrCat(folder.path(), ": no tensor ", name, "_blocks"));
    }
    ASSIGN_OR_RETURN(io::TensorView blocks, FindPart(folder, parts[0], {io::DType::kU8}));
    ASSIGN_OR_RETURN(io::TensorView scales,
                     FindPart(folder, parts[1], {io::DType::kU8, io::DType::kF8E8M0}));
    return std::make_shared<const Mxfp4Tensor>(std::move(blocks), std::move(scales),
                                               folder.FileOf(parts[1].name), shape);
  }

  bool Ignores(absl::string_view /*name*/) const override { return false; }
};

}  // namespace

absl::StatusOr<std::shared_ptr<const Quantization>> ReadMxfp4Quantization(
    const ConfigReader& /*settings*/) {
  return std::make_shared<const Mxfp4Quantization>();
}

}  // namespace tandem::model
