#include "common/model/stored_layout.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "common/model/frozen_parameters.h"
#include "common/model/stored_placement.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

constexpr char kHead[] = "lm_head.weight";
constexpr char kHeadBias[] = "lm_head.bias";
constexpr char kEmbedding[] = "model.embed_tokens.weight";

// The spec's constants, one for each layer.
std::vector<StoredConstant> ConstantsOf(const ModelSpec& spec) {
  std::vector<StoredConstant> constants;
  for (int64_t layer = 0; layer < spec.num_layers(); ++layer) {
    for (const StoredConstant& constant : spec.stored_constants) {
      constants.push_back({absl::StrReplaceAll(constant.tensor, {{"{layer}", absl::StrCat(layer)}}),
                           constant.value});
    }
  }
  return constants;
}

// Collects what the parameters take of one stored tensor, then checks that they tile it.
class TensorTiling {
 public:
  TensorTiling(const StoredPlacement& placement, std::string parameter)
      : view_(placement.view),
        num_rows_(placement.num_rows),
        skip_rows_(placement.skip_rows),
        rows_of_expert_(placement.num_rows / placement.num_experts) {
    parts_.push_back({placement.rows, std::move(parameter)});
  }

  absl::Status Add(const StoredPlacement& placement, const std::string& parameter) {
    if (placement.view.tensor_shape != view_.tensor_shape) {
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", view_.tensor, ": its shape is [", absl::StrJoin(view_.tensor_shape, ", "),
          "] by the rule for ", parts_[0].parameter, ", but [",
          absl::StrJoin(placement.view.tensor_shape, ", "), "] by that for ", parameter));
    }
    if (placement.num_rows != num_rows_ ||
        placement.num_rows / placement.num_experts != rows_of_expert_) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", view_.tensor, ": the rules for ", parts_[0].parameter, " and ",
                       parameter, " do not agree on its rows; transpose both or neither"));
    }
    skip_rows_ = std::min(skip_rows_, placement.skip_rows);
    parts_.push_back({placement.rows, parameter});
    return absl::OkStatus();
  }

  absl::Status Check() const {
    // The usual case, whose rows need no list.
    if (parts_.size() == 1 && parts_[0].rows.blocks == 1 && parts_[0].rows.size == num_rows_) {
      return absl::OkStatus();
    }
    // A list of more would take more than 256 MiB; no model has such a tensor.
    constexpr int64_t kMaxRows = int64_t{1} << 26;
    if (num_rows_ > kMaxRows) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", view_.tensor, ": expected at most ", kMaxRows,
                       " rows that parameters share, found ", num_rows_));
    }
    constexpr int kNone = -1;
    std::vector<int> owner(static_cast<size_t>(num_rows_), kNone);
    for (size_t p = 0; p < parts_.size(); ++p) {
      const StoredRows& rows = parts_[p].rows;
      for (int64_t i = 0; i < rows.blocks * rows.size; ++i) {
        const int64_t row = rows.first + i / rows.size * rows.period + i % rows.size;
        int& of = owner[static_cast<size_t>(row)];
        if (of != kNone) {
          return absl::InvalidArgumentError(absl::StrCat(
              "tensor ", view_.tensor, ": row ", row, " belongs to both ", parts_[of].parameter,
              " and ", parts_[p].parameter, "; expected rules whose parts do not overlap"));
        }
        of = static_cast<int>(p);
      }
    }
    for (int64_t row = 0; row < num_rows_; ++row) {
      if (owner[static_cast<size_t>(row)] != kNone || row % rows_of_expert_ < skip_rows_) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "tensor ", view_.tensor, ": row ", row, " of ", num_rows_,
          " belongs to no parameter; expected a rule for each part beside those of ", Names()));
    }
    return absl::OkStatus();
  }

  bool has_gaps() const { return skip_rows_ > 0; }

 private:
  struct Part {
    StoredRows rows;
    std::string parameter;
  };

  std::string Names() const {
    return absl::StrJoin(parts_, ", ", [](std::string* out, const Part& part) {
      absl::StrAppend(out, part.parameter);
    });
  }

  StoredView view_;  // the first part's
  int64_t num_rows_;
  int64_t skip_rows_;
  int64_t rows_of_expert_;
  std::vector<Part> parts_;
};

}  // namespace

absl::StatusOr<StoredLayout> StoredLayout::Create(const ModelSpec& spec,
                                                  std::vector<LogicalParameter> parameters,
                                                  const io::ModelFolder* folder) {
  StoredLayout layout(std::move(parameters));
  absl::flat_hash_map<std::string, size_t> indices;
  for (size_t i = 0; i < layout.parameters_.size(); ++i) {
    indices.emplace(layout.parameters_[i].name, i);
  }
  const auto shape_of = [&](const std::string& name) -> const std::vector<int64_t>* {
    const auto it = indices.find(name);
    return it == indices.end() ? nullptr : &layout.parameters_[it->second].shape;
  };

  absl::flat_hash_map<std::string, size_t> tensors;  // into layout.tensors_
  std::vector<TensorTiling> tilings;
  for (size_t i = 0; i < layout.parameters_.size(); ++i) {
    const LogicalParameter& parameter = layout.parameters_[i];
    ASSIGN_OR_RETURN(std::vector<StoredPlacement> placements,
                     PlaceParameter(spec, parameter.name, parameter.shape, shape_of));
    std::vector<StoredView>& views = layout.views_.emplace_back();
    for (StoredPlacement& placement : placements) {
      const auto [it, is_new] = tensors.emplace(placement.view.tensor, layout.tensors_.size());
      if (is_new) {
        layout.tensors_.push_back({placement.view.tensor, placement.view.tensor_shape, {}, false});
        tilings.emplace_back(placement, parameter.name);
      } else {
        RETURN_IF_ERROR(tilings[it->second].Add(placement, parameter.name));
      }
      layout.tensors_[it->second].parts.push_back({i, views.size()});
      views.push_back(std::move(placement.view));
    }
  }
  for (size_t t = 0; t < tilings.size(); ++t) {
    RETURN_IF_ERROR(tilings[t].Check());
    layout.tensors_[t].has_gaps = tilings[t].has_gaps();
  }

  const auto embedding = indices.find(kEmbedding);
  if (spec.tie_word_embeddings && embedding != indices.end()) {
    layout.tied_parameter_ = static_cast<int>(embedding->second);
    const std::vector<int64_t>& shape = layout.parameters_[embedding->second].shape;
    ASSIGN_OR_RETURN(std::vector<StoredPlacement> placements,
                     PlaceParameter(spec, kHead, shape, shape_of));
    for (StoredPlacement& placement : placements) {
      layout.tied_views_.push_back(std::move(placement.view));
    }
  }
  layout.ignored_ = spec.ignored_tensors;
  layout.ignored_.push_back("*rotary_emb.inv_freq");
  layout.constants_ = ConstantsOf(spec);
  for (const StoredConstant& constant : layout.constants_) {
    layout.ignored_.push_back(constant.tensor);
  }
  if (spec.value_head) {
    // Only their names count.
    for (const char* head : {kHead, kHeadBias}) {
      ASSIGN_OR_RETURN(const std::vector<StoredPlacement> placements,
                       PlaceParameter(spec, head, {1}, shape_of));
      for (const StoredPlacement& placement : placements) {
        layout.ignored_.push_back(placement.view.tensor);
      }
    }
  }
  if (folder == nullptr) return layout;
  layout.TakeNamesOf(spec, *folder);
  ASSIGN_OR_RETURN(layout.quantization_,
                   ReadQuantization(folder->config().json, folder->config().path));
  return layout;
}

absl::StatusOr<StoredLayout> StoredLayout::Create(const ParameterTable& table,
                                                  const io::ModelFolder* folder) {
  std::vector<LogicalParameter> parameters;
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    parameters.push_back({table.segment(ref).name, table.segment(ref).global_shape,
                          table.parameter(ref.parameter).in_float32});
  }
  return Create(table.spec(), std::move(parameters), folder);
}

void StoredLayout::TakeNamesOf(const ModelSpec& spec, const io::ModelFolder& folder) {
  std::vector<std::string> names;
  for (const StoredTensor& tensor : tensors_) names.push_back(tensor.name);
  prefix_ = FolderPrefix::Find(spec.optional_prefixes, names, folder);
  for (StoredTensor& tensor : tensors_) tensor.name = prefix_.InFolder(tensor.name, folder);
  for (std::vector<StoredView>& views : views_) {
    for (StoredView& view : views) view.tensor = prefix_.InFolder(view.tensor, folder);
  }
  for (StoredView& view : tied_views_) view.tensor = prefix_.InFolder(view.tensor, folder);
  for (StoredConstant& constant : constants_) {
    constant.tensor = prefix_.InFolder(constant.tensor, folder);
  }
}

std::string StoredLayout::DescribeParts(const StoredTensor& tensor) const {
  return absl::StrJoin(tensor.parts, ", ", [&](std::string* out, const StoredTensor::Part& part) {
    absl::StrAppend(out, parameters_[part.parameter].name);
  });
}

bool StoredLayout::Ignores(const std::string& name) const {
  if (quantization_ != nullptr && quantization_->Ignores(name)) return true;
  const std::string in_rules = prefix_.InRules(name);
  return std::any_of(ignored_.begin(), ignored_.end(), [&](const std::string& pattern) {
    return MatchesPattern(pattern, name) || MatchesPattern(pattern, in_rules);
  });
}

}  // namespace tandem::model
