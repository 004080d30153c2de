#include "common/weights/manifest.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/hash/hasher.h"
#include "common/model/segment_box.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"

namespace tandem::weights {
namespace {

constexpr int kMaxNamesInMessage = 3;

std::string Describe(const TensorEntry& tensor) {
  std::string text = absl::StrCat(tensor.dtype(), "[", absl::StrJoin(tensor.shape(), ", "), "]");
  if (tensor.has_box()) {
    const auto& box = tensor.box();
    absl::StrAppend(&text, " rows ", box.first_row(), "+", box.rows(), " columns ",
                    box.first_column(), "+", box.columns());
  }
  return text;
}

bool SameForm(const TensorEntry& a, const TensorEntry& b) {
  if (a.dtype() != b.dtype() || a.shape_size() != b.shape_size() ||
      a.placements_size() != b.placements_size()) {
    return false;
  }
  if (!std::equal(a.shape().begin(), a.shape().end(), b.shape().begin())) return false;
  if (a.has_box() != b.has_box() || a.box().SerializeAsString() != b.box().SerializeAsString()) {
    return false;
  }
  for (int i = 0; i < a.placements_size(); ++i) {
    if (a.placements(i).SerializeAsString() != b.placements(i).SerializeAsString()) return false;
  }
  return true;
}

template <typename Names>
std::string FirstNames(const Names& names) {
  std::vector<std::string> first(names.begin(),
                                 names.begin() + std::min<int>(names.size(), kMaxNamesInMessage));
  if (names.size() > kMaxNamesInMessage) first.push_back("...");
  return absl::StrJoin(first, ", ");
}

}  // namespace

absl::StatusOr<Manifest> MakeManifest(const model::ParameterTable& table, io::DType wire_dtype) {
  if (wire_dtype != io::DType::kF32 && wire_dtype != io::DType::kBF16 &&
      wire_dtype != io::DType::kF16) {
    return absl::InvalidArgumentError(absl::StrCat(
        "wire dtype: expected float32, bfloat16 or float16, found ", io::TorchName(wire_dtype)));
  }
  Manifest manifest;
  for (const auto& ref : table.segments()) {
    const model::Segment& segment = table.segment(ref);
    TensorEntry& tensor = *manifest.add_tensors();
    tensor.set_name(segment.name);
    for (const int64_t size : segment.global_shape) tensor.add_shape(size);
    if (segment.numel == 0) {
      tensor.mutable_box();  // nothing: another rank holds the expert
    } else if (segment.shape != segment.global_shape) {
      const model::Box part = model::BoxOf(segment);
      common::v1::TensorBox& box = *tensor.mutable_box();
      box.set_first_row(part.row_begin);
      box.set_rows(part.row_end - part.row_begin);
      box.set_first_column(part.column_begin);
      box.set_columns(part.width());
    }
    const model::Parameter& parameter = table.parameter(ref.parameter);
    tensor.set_dtype(
        std::string(io::TorchName(parameter.in_float32 ? io::DType::kF32 : wire_dtype)));
    tensor.set_trainable(parameter.trainable || parameter.moved);
  }
  manifest.set_digest(ManifestDigest(manifest));
  return manifest;
}

std::string ManifestDigest(const Manifest& manifest) {
  // Every part is preceded by its length, so that no two manifests give the same bytes.
  hash::Hasher hasher;
  const auto number = [&hasher](int64_t value) { hasher.Update(&value, sizeof(value)); };
  const auto text = [&](const std::string& value) {
    number(static_cast<int64_t>(value.size()));
    hasher.Update(value.data(), value.size());
  };
  number(manifest.tensors_size());
  for (const TensorEntry& tensor : manifest.tensors()) {
    text(tensor.name());
    number(tensor.shape_size());
    for (const int64_t size : tensor.shape()) number(size);
    text(tensor.dtype());
    number(tensor.placements_size());
    for (const auto& placement : tensor.placements()) {
      text(placement.axis());
      number(placement.has_shard_dim() ? placement.shard_dim() : -1);
    }
    number(tensor.has_box() ? 1 : 0);
    if (!tensor.has_box()) continue;
    number(tensor.box().first_row());
    number(tensor.box().rows());
    number(tensor.box().first_column());
    number(tensor.box().columns());
  }
  return hasher.Hex();
}

absl::StatusOr<int64_t> TensorBytes(const TensorEntry& tensor) {
  const auto dtype = io::ParseDType(tensor.dtype());
  if (!dtype.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", tensor.name(), ": unknown dtype '", tensor.dtype(), "'"));
  }
  int64_t bytes = io::SizeOf(*dtype);
  for (const int64_t size : tensor.shape()) {
    if (size < 0 || (size > 0 && bytes > kMaxModelBytes / size)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", tensor.name(), ": ", Describe(tensor), " is not a valid tensor size"));
    }
    bytes *= size;
  }
  if (!tensor.has_box()) return bytes;
  const int64_t rows = tensor.shape_size() == 0 ? 1 : tensor.shape(0);
  const int64_t columns = rows == 0 ? 0 : bytes / io::SizeOf(*dtype) / rows;
  const auto& box = tensor.box();
  const auto within = [](int64_t first, int64_t count, int64_t size) {
    return first >= 0 && count >= 0 && count <= size && first <= size - count;
  };
  if (!within(box.first_row(), box.rows(), rows) ||
      !within(box.first_column(), box.columns(), columns)) {
    return absl::InvalidArgumentError(absl::StrCat("tensor ", tensor.name(), ": ", Describe(tensor),
                                                   " exceeds its ", rows, " x ", columns));
  }
  return box.rows() * box.columns() * io::SizeOf(*dtype);
}

absl::StatusOr<int64_t> ManifestBytes(const Manifest& manifest) {
  int64_t total = 0;
  for (const TensorEntry& tensor : manifest.tensors()) {
    ASSIGN_OR_RETURN(const int64_t bytes, TensorBytes(tensor));
    total += bytes;  // at most kMaxTensors x kMaxModelBytes: cannot overflow before the check
    if (total > kMaxModelBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("manifest: more than ", kMaxModelBytes, " bytes"));
    }
  }
  return total;
}

absl::Status CheckManifest(const Manifest& manifest) {
  if (manifest.tensors_size() == 0 || manifest.tensors_size() > kMaxTensors) {
    return absl::InvalidArgumentError(absl::StrCat("manifest: expected 1 to ", kMaxTensors,
                                                   " tensors, found ", manifest.tensors_size()));
  }
  RETURN_IF_ERROR(ManifestBytes(manifest).status());
  absl::flat_hash_map<std::string, int> seen;
  for (int i = 0; i < manifest.tensors_size(); ++i) {
    const std::string& name = manifest.tensors(i).name();
    if (name.empty())
      return absl::InvalidArgumentError(absl::StrCat("manifest: tensor ", i, " has no name"));
    if (!seen.emplace(name, i).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("manifest: tensor ", name, " is listed twice"));
    }
  }
  if (const std::string digest = ManifestDigest(manifest); manifest.digest() != digest) {
    return absl::InvalidArgumentError(absl::StrCat("manifest: digest ", manifest.digest(),
                                                   " is stated, the contents have ", digest));
  }
  return absl::OkStatus();
}

common::v1::UnloadedParams CompareManifests(const Manifest& expected, const Manifest& offered) {
  absl::flat_hash_map<std::string, const TensorEntry*> by_name;
  for (const TensorEntry& tensor : offered.tensors()) by_name.emplace(tensor.name(), &tensor);
  common::v1::UnloadedParams out;
  for (const TensorEntry& tensor : expected.tensors()) {
    const auto it = by_name.find(tensor.name());
    if (it == by_name.end()) {
      out.add_missing(tensor.name());
      continue;
    }
    if (!SameForm(tensor, *it->second)) {
      auto& mismatch = *out.add_mismatched();
      mismatch.set_name(tensor.name());
      mismatch.set_expected(Describe(tensor));
      mismatch.set_actual(Describe(*it->second));
    }
    by_name.erase(it);
  }
  for (const TensorEntry& tensor : offered.tensors()) {
    if (by_name.contains(tensor.name())) out.add_unexpected(tensor.name());
  }
  return out;
}

absl::Status CheckSameTensors(const Manifest& expected, const Manifest& offered) {
  const common::v1::UnloadedParams difference = CompareManifests(expected, offered);
  std::vector<std::string> parts;
  if (difference.missing_size() > 0) {
    parts.push_back(
        absl::StrCat(difference.missing_size(), " missing: ", FirstNames(difference.missing())));
  }
  if (difference.unexpected_size() > 0) {
    parts.push_back(absl::StrCat(difference.unexpected_size(),
                                 " unexpected: ", FirstNames(difference.unexpected())));
  }
  if (difference.mismatched_size() > 0) {
    const auto& first = difference.mismatched(0);
    parts.push_back(absl::StrCat(difference.mismatched_size(), " mismatched: ", first.name(),
                                 " is ", first.actual(), ", expected ", first.expected()));
  }
  if (parts.empty()) {
    for (int i = 0; i < expected.tensors_size(); ++i) {
      if (expected.tensors(i).name() != offered.tensors(i).name()) {
        return absl::FailedPreconditionError(absl::StrCat(
            "manifests differ in order: tensor ", i, " is ", offered.tensors(i).name(),
            ", expected ", expected.tensors(i).name(), "; both sides must run the same release"));
      }
    }
    return absl::OkStatus();
  }
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(
      "the trainer's parameters differ from the rollout's: ", absl::StrJoin(parts, "; "),
      "; start both with the same model"));
  rpc::AttachDetail(status, difference);
  return status;
}

}  // namespace tandem::weights
