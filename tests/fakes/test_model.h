// A small model of given shapes with numbers that are all different, as manifest, shards and bytes.
#ifndef TANDEM_TESTS_FAKES_TEST_MODEL_H_
#define TANDEM_TESTS_FAKES_TEST_MODEL_H_

#include <ATen/ATen.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "common/weights/bucket_plan.h"
#include "common/weights/manifest.h"
#include "common/weights/model_layout.h"
#include "common/weights/tensor_digests.h"

namespace tandem::testing {

// units[u][t] is the shape of tensor "u<u>.t<t>".
struct TestModel {
  std::vector<std::vector<std::vector<int64_t>>> units;
  std::string dtype = "float32";
  double offset = 0;  // another offset is another set of weights, but for those of frozen units
  std::set<size_t> frozen = {};  // units
  // Units whose tensors the ranks of a replica share: every tensor by its columns, or as an expert that one
  // rank holds.
  std::set<size_t> columns = {};
  std::set<size_t> experts = {};

  static TestModel Small(std::string dtype = "float32") {
    return {{{{7, 5}}, {{3, 4}, {11}, {2, 3, 5}}, {{1}, {64, 3}}}, std::move(dtype)};
  }

  weights::Manifest manifest() const {
    weights::Manifest manifest;
    for (size_t u = 0; u < units.size(); ++u) {
      for (size_t t = 0; t < units[u].size(); ++t) {
        auto& tensor = *manifest.add_tensors();
        tensor.set_name("u" + std::to_string(u) + ".t" + std::to_string(t));
        for (const int64_t size : units[u][t]) tensor.add_shape(size);
        tensor.set_dtype(dtype);
        tensor.set_trainable(!frozen.contains(u));
      }
    }
    manifest.set_digest(weights::ManifestDigest(manifest));
    return manifest;
  }

  static int64_t Numel(const std::vector<int64_t>& shape) {
    int64_t numel = 1;
    for (const int64_t size : shape) numel *= size;
    return numel;
  }

  int64_t UnitNumel(size_t u) const {
    int64_t numel = 0;
    for (const auto& shape : units[u]) numel += Numel(shape);
    return numel;
  }

  at::ScalarType type() const { return dtype == "bfloat16" ? at::kBFloat16 : at::kFloat; }

  // The unit's flat buffer in float32, without padding.
  at::Tensor Flat(size_t u) const {
    const double first = 1.0 + static_cast<double>(u) + (frozen.contains(u) ? 0 : offset);
    return (at::arange(UnitNumel(u), at::kDouble) * 0.37 + first).to(at::kFloat);
  }

  // The bytes that tensor i of the manifest has on the wire.
  std::string Bytes(int index) const {
    for (size_t u = 0; u < units.size(); ++u) {
      int64_t element = 0;
      for (const auto& shape : units[u]) {
        if (index-- == 0) {
          at::Tensor part = Flat(u).narrow(0, element, Numel(shape)).to(type()).contiguous();
          return std::string(static_cast<const char*>(part.data_ptr()), part.nbytes());
        }
        element += Numel(shape);
      }
    }
    return "";
  }

  // Of each tensor of the manifest, as a whole.
  std::vector<weights::TensorDigest> Digests() const {
    const weights::Manifest all = manifest();
    std::vector<weights::TensorDigest> digests;
    for (int i = 0; i < all.tensors_size(); ++i) {
      const std::string bytes = Bytes(i);
      digests.push_back(weights::MakeTensorDigest(
          all.tensors(i),
          weights::SumOfHeld(all.tensors(i),
                             {reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()})));
    }
    return digests;
  }

  // A rank's slice of the unit's padded flat buffer.
  at::Tensor Shard(size_t u, int rank, int ranks) const {
    const int64_t padded = Padded(u, ranks);
    at::Tensor full = at::full({padded}, -1e9, at::kFloat);  // padding never travels
    full.narrow(0, 0, UnitNumel(u)).copy_(Flat(u));
    return full.narrow(0, rank * (padded / ranks), padded / ranks).clone();
  }

  // As a replica of `ranks` ranks holds it, or a trainer's copy: each rank has all of it, but for
  // the units of which ranks hold parts.
  weights::ModelLayout Layout(int ranks) const {
    weights::ModelLayout layout;
    for (const auto& unit : units) {
      for (const auto& shape : unit) {
        layout.tensors.push_back({"t", shape[0], Numel(shape) / shape[0]});
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      weights::PartLayout& part = layout.parts.emplace_back();
      int32_t tensor = 0;
      for (size_t u = 0; u < units.size(); ++u) {
        int64_t offset = 0;
        for (size_t t = 0; t < units[u].size(); ++t, ++tensor) {
          if (experts.contains(u) && static_cast<int>(t) % ranks != rank) continue;
          const weights::LogicalTensor& whole = layout.tensors[tensor];
          weights::TensorBox box{tensor, 0, whole.rows, 0, whole.columns, static_cast<int32_t>(u),
                                 offset};
          if (columns.contains(u)) {
            box.first_column = whole.columns * rank / ranks;
            box.columns = whole.columns * (rank + 1) / ranks - box.first_column;
          }
          if (box.elements() == 0) continue;
          part.boxes.push_back(box);
          offset += box.elements();
        }
        part.unit_elements.push_back(offset);
      }
    }
    return layout;
  }

  // What rank `rank` of a replica of `ranks` ranks expects, and its bytes of tensor i.
  weights::Manifest PartManifest(int rank, int ranks) const {
    weights::Manifest part = manifest();
    const weights::ModelLayout layout = Layout(ranks);
    std::vector<bool> held(part.tensors_size(), false);
    for (const weights::TensorBox& box : layout.parts[rank].boxes) {
      held[box.tensor] = true;
      const weights::LogicalTensor& whole = layout.tensors[box.tensor];
      if (box.rows == whole.rows && box.columns == whole.columns) continue;
      auto& cut = *part.mutable_tensors(box.tensor)->mutable_box();
      cut.set_rows(box.rows);
      cut.set_first_column(box.first_column);
      cut.set_columns(box.columns);
    }
    for (int i = 0; i < part.tensors_size(); ++i) {
      if (!held[i]) part.mutable_tensors(i)->mutable_box();
    }
    part.set_digest(weights::ManifestDigest(part));
    return part;
  }
  std::string PartBytes(int index, int rank, int ranks) const {
    const weights::ModelLayout layout = Layout(ranks);
    const std::string whole = Bytes(index);
    const weights::LogicalTensor& tensor = layout.tensors[index];
    const auto element = static_cast<int64_t>(whole.size()) / tensor.elements();
    std::string out;
    for (const weights::TensorBox& box : layout.parts[rank].boxes) {
      if (box.tensor != index) continue;
      for (int64_t row = box.first_row; row < box.first_row + box.rows; ++row) {
        out += whole.substr((row * tensor.columns + box.first_column) * element,
                            box.columns * element);
      }
    }
    return out;
  }

  int64_t Padded(size_t u, int ranks) const { return (UnitNumel(u) + ranks - 1) / ranks * ranks; }
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_TEST_MODEL_H_
