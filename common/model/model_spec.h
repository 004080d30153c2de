// ModelSpec: a decoder-only transformer as numbers: properties of the whole model and a list of its
// layers. Parameters, units, arenas, manifest, caches, checkpoints and memory plan all derive from
// it.
//
//   ASSIGN_OR_RETURN(nlohmann::json config, io::ReadJsonFile("model/config.json"));
//   ASSIGN_OR_RETURN(ModelSpec spec, ParseModelSpec(config, "model/config.json"));
#ifndef TANDEM_COMMON_MODEL_MODEL_SPEC_H_
#define TANDEM_COMMON_MODEL_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/layers/attention_spec.h"
#include "common/model/layers/expert_spec.h"
#include "common/model/layers/feed_forward_spec.h"
#include "common/model/layers/norm_spec.h"
#include "common/model/layers/rope_spec.h"
#include "common/model/stored_rule.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::model {

// What a layer adds of its own input (ModelSpec::layer_inputs), behind its sub-layers:
// norm(W_out (activation(W_in stream) * input)).
struct InputGateSpec {
  int64_t size = 0;  // elements of the input: LayerInputSpec::size
  Activation activation = Activation::kGeluTanh;

  friend bool operator==(const InputGateSpec&, const InputGateSpec&) = default;
};

// Where the norms of a layer stand.
enum class NormPlacement {
  kBefore,    // before each sub-layer
  kAfter,     // after each sub-layer, before its result is added
  kSandwich,  // both
};

// Attention, then a feed-forward layer, dense or of experts, each added to its input. Norms stand
// before or after each of them.
struct LayerSpec {
  AttentionSpec attention;
  FeedForwardSpec feed_forward;
  std::optional<ExpertSpec> experts;  // if set, in place of feed_forward, or beside it
  NormSpec norm;                      // of each of the layer's norms
  NormPlacement norm_placement = NormPlacement::kBefore;
  // Attention and feed-forward both read the layer's input, and both results are added to it.
  bool parallel = false;
  bool shared_norm = false;          // of a parallel layer: one norm before both
  double residual_multiplier = 1.0;  // of what each sub-layer adds
  // Of a layer with norms before its sub-layers: learned factors of what each adds, [hidden].
  bool residual_scales = false;
  std::optional<InputGateSpec> input_gate;  // a norm like the layer's others follows it
  bool output_scalar =
      false;  // what the layer yields is multiplied by a number that is not trained

  bool has_dense() const { return !experts.has_value() || experts->beside_dense; }
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

// Of each token an input for every layer, the sum of two parts over sqrt(2): the token's row of a second
// table, times sqrt(size), and the norm of a projection of its embedding (Gemma 3n, Gemma 4).
struct LayerInputSpec {
  int64_t vocab_size = 0;  // rows of the table; at least the model's
  int64_t size = 0;        // elements of one layer's input
  NormSpec norm;           // of the projection, layer by layer

  friend bool operator==(const LayerInputSpec&, const LayerInputSpec&) = default;
};

// A learned vector for each position, added to the embedding.
struct PositionEmbeddingSpec {
  int64_t num_positions = 0;
  int64_t offset = 0;  // row of position 0 in the tensor, which has num_positions + offset rows

  friend bool operator==(const PositionEmbeddingSpec&, const PositionEmbeddingSpec&) = default;
};

// A tensor of a tower that no forward pass reads: it is kept, and never trained.
struct UnreadTensor {
  std::string name;  // "visual.post_layernorm.weight"
  std::vector<int64_t> shape;

  friend bool operator==(const UnreadTensor&, const UnreadTensor&) = default;
};

// How an image that is its prompt's only one is laid on a canvas that is cut into tiles, whose rows are put
// together without the canvas' margins (LLaVA-OneVision; packed_tiles.h). An image among others is one tile.
struct CanvasSpec {
  struct Size {
    int64_t height = 0;
    int64_t width = 0;

    friend bool operator==(const Size&, const Size&) = default;
  };
  std::vector<Size> sizes;  // that there are, in pixels: multiples of TileSpec::image_size
  // An image with clearly more rows than so many tiles have is shrunk to about as many.
  int64_t max_tiles = 0;

  friend bool operator==(const CanvasSpec&, const CanvasSpec&) = default;
};

// What a plain ViT (2010.11929) has in place of the towers that take images of any size: it sees tiles,
// squares of one size, each by itself (tile_tower.h).
struct TileSpec {
  // Pixels of a tile's side; those beyond the last whole patch are not seen.
  int64_t image_size = 0;
  int64_t side = 0;                 // patches of a tile's side
  bool class_token = false;         // a learned vector before the patches of a tile
  bool class_token_is_row = false;  // its parameter is [1, hidden], not [hidden]
  bool keeps_class_token = false;   // what becomes of it is the first row of a tile
  int64_t num_read_layers = 0;      // those behind them are not computed
  // A patch's place on a side is the share of the side before it, in float32, whose rounding makes some
  // the one before (tile_positions.h).
  bool positions_by_share = false;
  // The rows of each tile stand for themselves, with tokens of text between those of two (Idefics 3).
  bool text_between = false;
  std::vector<UnreadTensor> unread;
  std::optional<CanvasSpec> canvas;

  int64_t tokens() const { return side * side + (class_token ? 1 : 0); }  // of a tile

  friend bool operator==(const TileSpec&, const TileSpec&) = default;
};

// The vision tower of a model that sees images: a transformer over the patches of an image, and a
// merger that makes rows of the embedding of them (vision_tower.h).
struct VisionSpec {
  int64_t patch_size = 0;           // pixels of a patch's side
  int64_t temporal_patch_size = 0;  // frames of a patch; those of an image are alike
  int64_t merge_size = 0;           // the side, in patches, of a square that becomes one row
  int64_t hidden_size = 0;          // of the tower
  bool patch_bias = false;
  // Side of a square of learned vectors that patches are added to: the square lies over the image, corner
  // on corner, and a patch takes the mean of the four vectors around it, by distance. 0: none.
  int64_t position_grid = 0;
  std::optional<NormSpec> first_norm;  // of each patch and class token, before the layers
  RopeSpec rope;  // half of a head's frequencies turn by the row, half by the column
  // Columns turn with the frequencies between those of rows (Pixtral), not with the same.
  bool columns_between_rows = false;
  std::vector<LayerSpec> layers;      // attention is not causal, and does not leave the image
  std::optional<NormSpec> last_norm;  // of what the layers make, before the merger; of tiles alone
  std::optional<NormSpec>
      merger_norm;  // of each patch; where there are tiles, of all that become a row
  bool merger_bias = true;
  Activation merger_activation = Activation::kGelu;
  bool merger_is_matrix = false;  // one makes a row of its input, without an activation
  // A matrix first makes a vector of the tower's width of the patches that become one row (Mistral 3's
  // patch merger): of the first element of each patch, then the second of each, ... The merger's other
  // matrices then take that, and are as wide as the language model.
  bool reduces_patches = false;
  // The merger's norm, and its matrix, take the mean of the patches that become one row (Gemma 3).
  bool averages_patches = false;
  // Side, in merged rows, of the windows in which layers attend, but for full_attention_layers; 0:
  // all attend to the whole image.
  int64_t window_size = 0;
  std::vector<int64_t> full_attention_layers;
  // Layers whose results a merger of their own makes rows of too (DeepStack, 2406.04334), ascending: those
  // of the i-th are added to the placeholders' places behind layer i of the language model.
  std::vector<int64_t> deepstack_layers;
  // Of a tower that sees tiles: its layers attend to a whole tile, without rotation. An image's grid is that
  // of its tiles, one below the other.
  std::optional<TileSpec> tiles;
  // Stand for a row of an image and of a video in a prompt; -1: the model takes no videos.
  int64_t image_token_id = 0;
  int64_t video_token_id = 0;
  // Texts of tokens that the processor puts around an image's placeholders (InternVL's <img> and </img>);
  // empty: it has none, or names them itself (images::PreprocessorConfig::placeholders).
  std::string image_start;
  std::string image_end;
  // The chat template writes image_start alone; the processor puts two ends of line before it, and the
  // placeholders, image_end and two ends of line behind it, before anything becomes tokens (Gemma 3).
  bool template_writes_start = false;
  // In the language model the placeholders of an image see one another, those behind them too (Gemma 3).
  bool images_see_ahead = false;
  // One token of text stands between two lines of an image's placeholders (Pixtral's [IMG_BREAK]).
  bool has_line_breaks = false;
  // The position of a placeholder is its place in the sequence, as that of text.
  bool has_text_positions = false;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t patch_elements() const { return 3 * temporal_patch_size * patch_size * patch_size; }
  int64_t patches_per_row() const { return merge_size * merge_size; }
  // What an image's row holds side by side: what stands in the embedding, and what deepstack adds.
  int64_t num_row_parts() const { return 1 + static_cast<int64_t>(deepstack_layers.size()); }
  bool has_canvas() const { return tiles.has_value() && tiles->canvas.has_value(); }
  // Elements of the patches that become one row.
  int64_t merged_size() const { return hidden_size * patches_per_row(); }
  // Elements that the first of the merger's two last matrices, or its only one, takes, and that it makes,
  // in front of a language model of this width.
  int64_t merger_input_size() const {
    return reduces_patches || averages_patches ? hidden_size : merged_size();
  }
  int64_t merger_width(int64_t text_hidden_size) const {
    return reduces_patches || tiles.has_value() ? text_hidden_size : merged_size();
  }
  // Elements that the merger's norm sees at once.
  int64_t merger_norm_size() const {
    return tiles.has_value() && !averages_patches ? merged_size() : hidden_size;
  }
  bool HasWindow(int64_t layer) const;
  // Of a tower that sees tiles, the rows that one becomes.
  int64_t rows_per_tile() const {
    return tiles->side * tiles->side / patches_per_row() + (tiles->keeps_class_token ? 1 : 0);
  }
};

struct ModelSpec {
  std::string architecture;  // "LlamaForCausalLM"; see families/families.yaml
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t max_position_embeddings = 0;
  double initializer_range = 0.02;
  // What AttentionSpec::rope counts; a layer's default is the first. One that turns whole heads is for
  // layers with the first layer's head_dim.
  std::vector<RopeSpec> ropes = std::vector<RopeSpec>(1);
  double embedding_multiplier = 1.0;         // of the token's embedding
  bool embedding_multiplier_rounds = false;  // to the type of the embedding, before the product
  std::optional<PositionEmbeddingSpec> position_embedding;
  std::optional<NormSpec> embedding_norm;
  // All layers have an input_gate if it is set, else none.
  std::optional<LayerInputSpec> layer_inputs;
  std::optional<NormSpec> final_norm = NormSpec{};
  // The head: logits = softcap(logit_scale * (W hidden + bias)).
  bool tie_word_embeddings = false;
  bool head_bias = false;
  double logit_scale = 1.0;
  double logit_softcap = 0.0;  // c: c tanh(logit / c); 0: none
  // True for a critic: one scalar per token in place of the output projection (ValueModelSpec).
  bool value_head = false;
  // End-of-sequence ids of config.json; generation_config.json may add more (io::ModelFolder).
  std::vector<int64_t> eos_token_ids;
  std::optional<int64_t> bos_token_id;
  std::optional<int64_t> pad_token_id;

  // Where parameters lie in the folder, if not under their own names. The first rule for a name
  // counts.
  std::vector<StoredRule> stored_rules;
  std::vector<StoredConstant> stored_constants;
  // Tensors of the folder that are no parameters: patterns with "*" ("*.rotary_emb.inv_freq").
  std::vector<std::string> ignored_tensors;
  // Prefixes that a folder may have or lack: "transformer.".
  std::vector<std::string> optional_prefixes;

  std::vector<LayerSpec> layers;  // in the order of the forward pass; at least one
  std::optional<VisionSpec> vision;

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  // Elements of a token's inputs of all layers; 0: none.
  int64_t layer_input_size() const {
    return layer_inputs.has_value() ? layer_inputs->size * num_layers() : 0;
  }
  // Elements of what a vision tower makes for one placeholder.
  int64_t image_row_size() const {
    return vision.has_value() ? hidden_size * vision->num_row_parts() : 0;
  }
  // Whether any layer has linear attention (layers/delta_spec.h).
  bool HasLinearAttention() const;
  // The attention of the first layer with keys and values.
  const AttentionSpec& full_attention() const;
  // Elements of all parameters; tied ones count once.
  int64_t num_parameters() const;
  // Of these, the elements of experts that a token does not reach, and of the table of layers' inputs, whose
  // rows are looked up.
  int64_t num_idle_parameters() const;
  // The others.
  int64_t num_active_parameters() const;
};

// Returns the same model with a value head, score.weight [1, hidden] and score.bias [1], in place
// of the output projection, like transformers' ForTokenClassification with one label.
ModelSpec ValueModelSpec(ModelSpec policy);

// Returns the elements of KV cache that a token takes in all layers together, on the rank of
// `tensor_ranks` with the most heads. Times the element size these are bytes. With sliding windows,
// this is the share of one block of each group (cache_groups.h), until the token leaves a window.
int64_t ModelCacheElementsPerToken(const ModelSpec& spec, int tensor_ranks, bool on_gpu,
                                   LatentCache latents = LatentCache::kExpanded);

// Reads a config.json of one of the families (families/family_table.h). `place` names the file in
// errors. INVALID_ARGUMENT names the key: a missing or non-positive size, heads that do not divide,
// a size so large that a product overflows. UNIMPLEMENTED: another architecture, activation, rope
// type, sliding windows in a family that has none, a quantization that is not read
// (quantization/quantization.h), or what else a family's row refuses. A model with a vision tower has
// the language model's keys in "text_config", or beside "vision_config".
absl::StatusOr<ModelSpec> ParseModelSpec(const nlohmann::json& config, const std::string& place);

// Reads the config.json of a value model: of the transformer that it begins from, or of
// transformers' ...ForTokenClassification with one label. Errors are those of ParseModelSpec();
// UNIMPLEMENTED for a model with a vision tower.
absl::StatusOr<ModelSpec> ParseValueModelSpec(nlohmann::json config, const std::string& place);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_MODEL_SPEC_H_
