#include "common/model/families/row_layers.h"

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/model/families/rotary_config.h"
#include "common/model/families/row_latent.h"
#include "common/status/status_macros.h"

namespace tandem::model {
namespace {

using nlohmann::json;

// Names of layers with a window in "layer_types".
constexpr const char* kSliding = "sliding_attention";
constexpr const char* kChunked = "chunked_attention";

// Returns the layers that "layer_types" gives a window, by its name `windowed_type`; nullopt without
// the key.
absl::StatusOr<std::optional<std::vector<int64_t>>> ListedWindows(const ConfigReader& config,
                                                                  int64_t num_layers,
                                                                  const char* windowed_type) {
  if (!config.Has("layer_types")) return std::optional<std::vector<int64_t>>();
  const json& types = config.At("layer_types");
  if (!types.is_array()) return config.Invalid("layer_types", "a list of names");
  std::vector<int64_t> windowed;
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] == windowed_type) {
      windowed.push_back(static_cast<int64_t>(i));
    } else if (types[i] != "full_attention") {
      return config.Unsupported("layer_types", absl::StrCat("full_attention, ", windowed_type));
    }
  }
  if (!windowed.empty() && static_cast<int64_t>(types.size()) != num_layers) {
    return config.Invalid("layer_types",
                          absl::StrCat("a list of \"num_hidden_layers\", ", num_layers, ", names"));
  }
  return std::optional(std::move(windowed));
}

// Returns the layers that the list of 0 and 1 at `key` gives a window; nullopt without it.
absl::StatusOr<std::optional<std::vector<int64_t>>> FlaggedWindows(const ConfigReader& config,
                                                                   int64_t num_layers,
                                                                   const std::string& key) {
  if (key.empty() || !config.Has(key.c_str())) return std::optional<std::vector<int64_t>>();
  const json& flags = config.At(key.c_str());
  const auto invalid = [&] {
    return config.Invalid(key.c_str(),
                          absl::StrCat("a list of ", num_layers, " numbers, each 0 or 1"));
  };
  if (!flags.is_array() || static_cast<int64_t>(flags.size()) != num_layers) return invalid();
  std::vector<int64_t> windowed;
  for (size_t i = 0; i < flags.size(); ++i) {
    if (flags[i] != 0 && flags[i] != 1) return invalid();
    if (flags[i] == 1) windowed.push_back(static_cast<int64_t>(i));
  }
  return std::optional(std::move(windowed));
}

// Refuses the windows of a config.json whose family has none.
absl::Status RefuseWindows(const ConfigReader& config, int64_t num_layers) {
  ASSIGN_OR_RETURN(const auto listed, ListedWindows(config, num_layers, kSliding));
  if (listed.has_value()) {
    return listed->empty() ? absl::OkStatus() : config.Unsupported("layer_types", "full_attention");
  }
  ASSIGN_OR_RETURN(const bool in_use, config.Flag("use_sliding_window", false));
  if (!in_use || !config.Has("sliding_window")) return absl::OkStatus();
  // Qwen's key, without the default that its own classes have.
  ASSIGN_OR_RETURN(const int64_t first, config.Count("max_window_layers", kMaxLayers, 0));
  return first >= num_layers ? absl::OkStatus() : config.Unsupported("use_sliding_window", "false");
}

// Says for each layer whether it rotates queries and keys.
absl::StatusOr<std::vector<bool>> RotatedLayers(const v1::FamilyRow& row, const RowValues& values,
                                                const ModelSpec& spec) {
  const ConfigReader& config = values.config();
  const size_t num_layers = spec.layers.size();
  std::vector<bool> rotated(num_layers, row.rope_layers() != v1::ROPE_LAYERS_NONE);
  const bool or_all = row.rope_layers() == v1::ROPE_LAYERS_WINDOWED_OR_ALL;
  if (or_all || row.rope_layers() == v1::ROPE_LAYERS_WINDOWED) {
    ASSIGN_OR_RETURN(const int64_t window, values.Count(row.windows().size(), kMaxPositions, 0));
    if (window == 0 && !or_all) {
      return values.SourceOf(row.windows().size()).Invalid("a number of tokens from 1 on");
    }
    for (size_t i = 0; i < num_layers && window > 0; ++i) {
      rotated[i] = spec.layers[i].attention.window.IsLimited();
    }
  }
  if (row.rope_layers() != v1::ROPE_LAYERS_LISTED) return rotated;
  // Llama 4's class takes an empty list for none.
  if (!config.Has("no_rope_layers") || config.At("no_rope_layers") == json::array()) {
    ASSIGN_OR_RETURN(const int64_t interval, config.Size("no_rope_layer_interval", kMaxLayers, 4));
    for (size_t i = 0; i < num_layers; ++i) {
      rotated[i] = (static_cast<int64_t>(i) + 1) % interval != 0;
    }
    return rotated;
  }
  const json& list = config.At("no_rope_layers");
  if (!list.is_array() || list.size() != num_layers) {
    return config.Invalid("no_rope_layers", absl::StrCat("a list of ", num_layers, " numbers"));
  }
  for (size_t i = 0; i < num_layers; ++i) {
    if (list[i] != 0 && list[i] != 1) return config.Invalid("no_rope_layers", "a list of 0 and 1");
    rotated[i] = list[i] == 1;
  }
  return rotated;
}

// Returns the layers to which the row's pattern gives a window.
absl::StatusOr<std::vector<int64_t>> PatternWindows(const v1::FamilyRow& row,
                                                    const RowValues& values,
                                                    const ModelSpec& spec) {
  const v1::Windows& windows = row.windows();
  const int64_t num_layers = spec.num_layers();
  ASSIGN_OR_RETURN(const int64_t first, values.Count(windows.first_layer(), kMaxLayers, 0));
  ASSIGN_OR_RETURN(const int64_t every, values.Count(windows.full_every(), kMaxLayers, 0));
  ASSIGN_OR_RETURN(const bool full_first, values.Flag(windows.full_first(), false));
  ASSIGN_OR_RETURN(const bool by_rotation, values.Flag(windows.rotated(), false));
  std::vector<bool> eligible(spec.layers.size(), true);
  if (by_rotation) {
    if (row.rope_layers() == v1::ROPE_LAYERS_WINDOWED ||
        row.rope_layers() == v1::ROPE_LAYERS_WINDOWED_OR_ALL) {
      return absl::InvalidArgumentError(
          absl::StrCat(values.config().place(), ": the row of ", row.architecture(),
                       " gives windows to the layers that rotate (\"windows.rotated\"), and "
                       "rotation to those with "
                       "a window (\"rope_layers\"); remove one of them from the row"));
    }
    ASSIGN_OR_RETURN(eligible, RotatedLayers(row, values, spec));
  }
  std::vector<int64_t> windowed;
  for (int64_t i = first; i < num_layers; ++i) {
    const bool full = every > 0 && (full_first ? i : i + 1) % every == 0;
    if (!full && eligible[i]) windowed.push_back(i);
  }
  return windowed;
}

// Refuses a file whose two forms of the same parameters differ: which of them the model was trained
// with is not known.
absl::Status CheckForms(const ConfigReader& config) {
  if (!config.Has("rope_parameters") || !config.Has("rope_scaling")) return absl::OkStatus();
  const json& newer = config.At("rope_parameters");
  const json& older = config.At("rope_scaling");
  if (!newer.is_object() || !older.is_object()) return absl::OkStatus();  // refused by type
  for (const auto& [key, value] : older.items()) {
    if (!newer.contains(key) || newer[key] != value) {
      return config.Invalid("rope_scaling", "as \"rope_parameters\" has it, or absent");
    }
  }
  return absl::OkStatus();
}

// Returns the "rope_parameters" of `config` or those of its "rope_scaling"; null without either.
const json* RopeParameters(const ConfigReader& config) {
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    if (config.Has(key)) return &config.At(key);
  }
  return nullptr;
}

// Ministral 3 has the scale of queries among the parameters of its rotation.
absl::Status ParseQueryScale(const ConfigReader& config, ModelSpec& spec) {
  const json* const parameters = RopeParameters(config);
  if (parameters == nullptr || !parameters->is_object()) return absl::OkStatus();
  const ConfigReader reader(*parameters, absl::StrCat(config.place(), ": rope_parameters"));
  ASSIGN_OR_RETURN(const double beta, reader.NonNegative("llama_4_scaling_beta", 0.0));
  if (beta == 0.0) return absl::OkStatus();
  QueryPositionScale scale{.beta = beta};
  ASSIGN_OR_RETURN(
      scale.original_max_position_embeddings,
      reader.Size("original_max_position_embeddings", kMaxPositions, spec.max_position_embeddings));
  for (LayerSpec& layer : spec.layers) layer.attention.query_position_scale = scale;
  return absl::OkStatus();
}

// Scales queries of layers without rotation.
absl::Status ParseUnrotatedScale(const v1::QueryScale& row, const RowValues& values,
                                 ModelSpec& spec) {
  ASSIGN_OR_RETURN(const bool in_use, values.Flag(row.in_use(), true));
  QueryPositionScale scale{.first = 1};
  ASSIGN_OR_RETURN(scale.beta, values.Limit(row.factor()));
  if (!in_use || scale.beta == 0.0) return absl::OkStatus();
  ASSIGN_OR_RETURN(scale.original_max_position_embeddings,
                   values.Size(row.interval(), kMaxPositions));
  for (LayerSpec& layer : spec.layers) {
    if (layer.attention.rope < 0) layer.attention.query_position_scale = scale;
  }
  return absl::OkStatus();
}

absl::Status ParseRopesOf(const v1::FamilyRow& row, const RowValues& values,
                          const ConfigReader& config, const std::vector<bool>& rotated,
                          ModelSpec& spec) {
  spec.ropes.clear();
  RotaryDefaults defaults;
  const std::optional<LatentSpec>& latent = spec.layers.front().attention.latent;
  defaults.head_dim = latent.has_value() ? latent->rope_dim : values.sizes.head_dim;
  defaults.max_position_embeddings = spec.max_position_embeddings;
  ASSIGN_OR_RETURN(defaults.theta, values.Positive(row.rope_theta(), defaults.theta));
  ASSIGN_OR_RETURN(defaults.sliding_theta, values.Positive(row.window_rope_theta(), 0.0));
  defaults.has_share = !row.partial_rotary_factor().empty();
  ASSIGN_OR_RETURN(defaults.partial_rotary_factor,
                   values.Positive(row.partial_rotary_factor(), 1.0));
  ASSIGN_OR_RETURN(defaults.has_alpha, values.Flag(row.rope_alpha(), false));
  if (!row.original_max_positions().empty()) {
    ASSIGN_OR_RETURN(defaults.original_max_position_embeddings,
                     values.Size(row.original_max_positions(), kMaxPositions));
  }
  ASSIGN_OR_RETURN(defaults.interleaved, values.Flag(row.rope_interleaved(), false));
  defaults.has_sections = row.vision_tower() != v1::VISION_TOWER_UNSPECIFIED;
  if (!row.rotary_dim().empty()) {
    const RowValues::Source source = values.SourceOf(row.rotary_dim());
    if (source.IsNull()) return source.Invalid("a number of elements");
    ASSIGN_OR_RETURN(defaults.rotary_dim, values.Size(row.rotary_dim(), kMaxHeadDim));
  }
  const json* const parameters = RopeParameters(config);
  const bool by_type = !row.window_rope_theta().empty() ||
                       (parameters != nullptr && (parameters->contains("full_attention") ||
                                                  parameters->contains("sliding_attention")));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    AttentionSpec& attention = spec.layers[i].attention;
    attention.rope = -1;
    if (!rotated[i]) continue;
    const std::string_view type = !by_type                       ? ""
                                  : attention.window.IsLimited() ? "sliding_attention"
                                                                 : "full_attention";
    if (!latent.has_value()) defaults.head_dim = attention.head_dim;
    ASSIGN_OR_RETURN(RopeSpec rope, ParseRotary(config, defaults, type));
    if (attention.head_dim != spec.layers.front().attention.head_dim && rope.rotary_dim == 0) {
      rope.rotary_dim = attention.head_dim;
    }
    if (latent.has_value()) {
      if (rope.rotary_dim != 0) {
        return absl::UnimplementedError(
            absl::StrCat(config.place(), ": \"partial_rotary_factor\" lets ", rope.rotary_dim,
                         " elements of a head rotate; supported: all of the ", latent->rope_dim,
                         " that latent attention sets apart for it"));
      }
      rope.rotary_dim = latent->rope_dim;
    }
    const auto same = std::find(spec.ropes.begin(), spec.ropes.end(), rope);
    attention.rope = static_cast<int>(same - spec.ropes.begin());
    if (same == spec.ropes.end()) spec.ropes.push_back(std::move(rope));
  }
  RETURN_IF_ERROR(ScaleLatentScores(config, spec));
  ASSIGN_OR_RETURN(const bool norms_rotated, values.Flag(row.qk_norm_rotated(), false));
  for (LayerSpec& layer : spec.layers) {
    if (norms_rotated && layer.attention.rope < 0) layer.attention.qk_norm.reset();
  }
  if (row.has_query_scale()) {
    RETURN_IF_ERROR(ParseUnrotatedScale(row.query_scale(), values, spec));
  }
  ASSIGN_OR_RETURN(const bool scales, values.Flag(row.query_position_scale(), false));
  return scales ? ParseQueryScale(config, spec) : absl::OkStatus();
}

}  // namespace

absl::Status ParseWindows(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec) {
  const ConfigReader& config = values.config();
  const v1::Windows& windows = row.windows();
  if (windows.size().empty()) {
    // row_linear.cc has checked a list that may name linear attention.
    if (row.has_linear_attention() && config.Has("layer_types")) return absl::OkStatus();
    return RefuseWindows(config, spec.num_layers());
  }
  ASSIGN_OR_RETURN(const bool in_use, values.Flag(windows.in_use(), true));
  ASSIGN_OR_RETURN(const int64_t window, values.Count(windows.size(), kMaxPositions, 0));
  ASSIGN_OR_RETURN(const bool chunked, values.Flag(windows.chunked(), false));
  const char* const type = chunked ? kChunked : kSliding;
  ASSIGN_OR_RETURN(auto listed, ListedWindows(config, spec.num_layers(), type));
  if (!listed.has_value()) {
    ASSIGN_OR_RETURN(listed, FlaggedWindows(config, spec.num_layers(), windows.layer_list()));
  }
  ASSIGN_OR_RETURN(const bool may_differ, values.Flag(windows.listed(), true));
  ASSIGN_OR_RETURN(const bool last_full, values.Flag(windows.last_full(), false));
  const auto spare_last = [&](std::vector<int64_t>& layers) {
    if (last_full) std::erase(layers, spec.num_layers() - 1);
  };
  if (listed.has_value()) spare_last(*listed);
  std::vector<int64_t> pattern;  // not read where a list may take its place
  if (in_use && window > 0 && !(listed.has_value() && may_differ)) {
    ASSIGN_OR_RETURN(pattern, PatternWindows(row, values, spec));
    spare_last(pattern);
  }
  const std::vector<int64_t>& windowed = listed.has_value() ? *listed : pattern;
  if (!windowed.empty() && !in_use) {
    return values.SourceOf(windows.in_use())
        .Invalid(absl::StrCat("true, as \"layer_types\" names ", type));
  }
  if (!windowed.empty() && window == 0) {
    return values.SourceOf(windows.size()).Invalid("a number of tokens from 1 on");
  }
  if (!may_differ && windowed != pattern) {
    return config.Unsupported(
        "layer_types", absl::StrCat(pattern.empty() ? "full_attention" : type, " for all layers"));
  }
  for (const int64_t i : windowed) spec.layers[i].attention.window = {window, chunked};
  return absl::OkStatus();
}

absl::Status ParseRopes(const v1::FamilyRow& row, const RowValues& values, ModelSpec& spec) {
  ASSIGN_OR_RETURN(const std::vector<bool> rotated, RotatedLayers(row, values, spec));
  const ConfigReader& config = values.config();
  RETURN_IF_ERROR(CheckForms(config));
  if (row.rope_parameters().empty() || RopeParameters(config) != nullptr) {
    return ParseRopesOf(row, values, config, rotated, spec);
  }
  // A config.json without them has those of the family's class.
  json completed = config.object();
  completed["rope_parameters"] = json::parse(row.rope_parameters());
  return ParseRopesOf(row, values, ConfigReader(completed, config.place()), rotated, spec);
}

}  // namespace tandem::model
