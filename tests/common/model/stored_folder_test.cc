// Folders that name and fuse their tensors as other families do: loaded, and written as they were.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/model/arena.h"
#include "common/model/load_parameters.h"
#include "common/model/stored_layout.h"
#include "common/model/stored_writer.h"
#include "tests/common/model/tensor_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::model {
namespace {

using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kHeads = 4;
constexpr int64_t kHeadDim = 2;
constexpr int64_t kHidden = 6;
constexpr char kLayer[] = "model.layers.{layer}.";

ModelSpec SmallSpec(int64_t kv_heads, std::vector<StoredRule> rules) {
  ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 11;
  spec.hidden_size = kHidden;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 10;
  layer.attention.num_heads = kHeads;
  layer.attention.num_kv_heads = kv_heads;
  layer.attention.head_dim = kHeadDim;
  layer.attention.qkv_bias = true;
  spec.layers.assign(2, layer);
  spec.stored_rules = std::move(rules);
  return spec;
}

// Rules that fuse `parts`, the weights and the biases that the model has.
void AddFused(const std::vector<std::string>& parts, const std::string& tensor, StoredFusion fusion,
              bool transposed, std::vector<StoredRule>& rules) {
  for (const char* suffix : {".weight", ".bias"}) {
    std::vector<std::string> names;
    for (const std::string& part : parts) names.push_back(kLayer + part + suffix);
    for (const std::string& name : names) {
      rules.push_back({name, tensor + suffix, fusion, names, transposed});
    }
  }
}

// Every parameter's logical tensor, random.
NamedTensors LogicalTensors(const ParameterTable& table) {
  at::manual_seed(3);
  NamedTensors tensors;
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    tensors[table.segment(ref).name] = at::randn(table.segment(ref).global_shape);
  }
  return tensors;
}

at::Tensor Take(NamedTensors& tensors, const std::string& name) {
  const at::Tensor tensor = tensors.at(name);
  tensors.erase(name);
  return tensor;
}

std::string Layer(int64_t layer, const std::string& name) {
  return "model.layers." + std::to_string(layer) + "." + name;
}

// A family's folder: the rules, and the same written out with tensor operations.
struct Family {
  ModelSpec spec;
  NamedTensors logical;
  NamedTensors stored;
};

// GPT-2: q, k and v are columns of one matrix, all matrices are transposed.
Family TransposedFamily() {
  std::vector<StoredRule> rules;
  AddFused({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
           "transformer.h.{layer}.attn.c_attn", StoredFusion::kStacked, true, rules);
  rules.push_back({std::string(kLayer) + "mlp.down_proj.weight",
                   "transformer.h.{layer}.mlp.c_proj.weight",
                   StoredFusion::kNone,
                   {},
                   true});
  rules.push_back({"model.embed_tokens.weight", "transformer.wte.weight"});
  Family family{SmallSpec(kHeads, std::move(rules)), {}, {}};
  family.spec.optional_prefixes = {"transformer."};
  family.logical = LogicalTensors(ParameterTable(family.spec));
  family.stored = family.logical;
  NamedTensors& stored = family.stored;
  stored["transformer.wte.weight"] = Take(stored, "model.embed_tokens.weight");
  for (int64_t i = 0; i < 2; ++i) {
    const std::string block = "transformer.h." + std::to_string(i) + ".";
    for (const std::string suffix : {".weight", ".bias"}) {
      std::vector<at::Tensor> parts;
      for (const char* part : {"q", "k", "v"}) {
        parts.push_back(
            Take(stored, Layer(i, std::string("self_attn.") + part + "_proj" + suffix)));
      }
      stored[block + "attn.c_attn" + suffix] = at::cat(parts).t();
    }
    stored[block + "mlp.c_proj.weight"] = Take(stored, Layer(i, "mlp.down_proj.weight")).t();
  }
  return family;
}

// Falcon: each group's queries, key and value, with biases; gate and up in turn, as gpt-oss has
// them; a constant in each layer, as Apertus has.
Family GroupedFamily() {
  constexpr int64_t kGroups = 2;
  std::vector<StoredRule> rules;
  AddFused({"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"},
           "h.{layer}.query_key_value", StoredFusion::kPerGroup, false, rules);
  AddFused({"mlp.gate_proj", "mlp.up_proj"}, "h.{layer}.gate_up", StoredFusion::kAlternating, true,
           rules);
  Family family{SmallSpec(kGroups, std::move(rules)), {}, {}};
  family.spec.stored_constants = {{"h.{layer}.beta", 0.5}};
  family.logical = LogicalTensors(ParameterTable(family.spec));
  family.stored = family.logical;
  NamedTensors& stored = family.stored;
  for (int64_t i = 0; i < 2; ++i) {
    const std::string block = "h." + std::to_string(i) + ".";
    for (const std::string suffix : {".weight", ".bias"}) {
      std::vector<at::Tensor> parts;
      for (const char* part : {"q", "k", "v"}) {
        const at::Tensor rows =
            Take(stored, Layer(i, std::string("self_attn.") + part + "_proj" + suffix));
        parts.push_back(rows.reshape({kGroups, rows.size(0) / kGroups, -1}));
      }
      const at::Tensor fused = at::cat(parts, 1).flatten(0, 1);
      stored[block + "query_key_value" + suffix] = suffix == ".bias" ? fused.flatten() : fused;
    }
    const at::Tensor gate = Take(stored, Layer(i, "mlp.gate_proj.weight"));
    const at::Tensor up = Take(stored, Layer(i, "mlp.up_proj.weight"));
    stored[block + "gate_up.weight"] = at::stack({gate, up}, 1).flatten(0, 1).t();
    stored[block + "beta"] = at::full({}, 0.5f);
  }
  return family;
}

// gpt-oss: the experts of a layer in one tensor, transposed, gate and up in turn, with biases; and the
// correction bias of ERNIE's router, [1, experts].
Family ExpertsFamily() {
  constexpr int64_t kExperts = 3;
  const std::string experts = std::string(kLayer) + "mlp.experts.{expert}.";
  const std::string tensor = "h.{layer}.experts.";
  std::vector<StoredRule> rules;
  for (const std::string kind : {"weight", "bias"}) {
    const std::string suffix = kind == "weight" ? "" : "_bias";
    const std::vector<std::string> parts = {experts + "gate_proj." + kind,
                                            experts + "up_proj." + kind};
    for (const std::string& part : parts) {
      rules.push_back({part, tensor + "gate_up" + suffix, StoredFusion::kAlternating, parts, true});
    }
    rules.push_back({experts + "down_proj." + kind, tensor + "down" + suffix, StoredFusion::kNone,
                     std::vector<std::string>(), true});
  }
  rules.push_back({.name = std::string(kLayer) + "mlp.gate.e_score_correction_bias",
                   .tensor = "h.{layer}.statics",
                   .leading_one = true});
  Family family{SmallSpec(kHeads, std::move(rules)), {}, {}};
  for (LayerSpec& layer : family.spec.layers) {
    layer.experts = {.num_experts = kExperts,
                     .intermediate_size = 5,
                     .routing = {.top_k = 2, .correction_bias = true},
                     .bias = true};
  }
  family.logical = LogicalTensors(ParameterTable(family.spec));
  family.stored = family.logical;
  NamedTensors& stored = family.stored;
  for (int64_t i = 0; i < 2; ++i) {
    const std::string block = "h." + std::to_string(i) + ".";
    for (const std::string kind : {"weight", "bias"}) {
      std::vector<at::Tensor> gate_up, down;
      for (int64_t e = 0; e < kExperts; ++e) {
        const std::string expert = "mlp.experts." + std::to_string(e) + ".";
        const at::Tensor gate = Take(stored, Layer(i, expert + "gate_proj." + kind));
        const at::Tensor up = Take(stored, Layer(i, expert + "up_proj." + kind));
        gate_up.push_back(at::stack({gate, up}, 1).flatten(0, 1).t());
        down.push_back(Take(stored, Layer(i, expert + "down_proj." + kind)).t());
      }
      const std::string suffix = kind == "weight" ? "" : "_bias";
      stored[block + "experts.gate_up" + suffix] = at::stack(gate_up);
      stored[block + "experts.down" + suffix] = at::stack(down);
    }
    stored[block + "statics"] =
        Take(stored, Layer(i, "mlp.gate.e_score_correction_bias")).unsqueeze(0);
  }
  return family;
}

enum class Experts { kTransposed, kUpright, kSingle };

// Qwen3-VL's and Qwen3.5's experts, which folders have in one of these forms.
Family EitherWayFamily(Experts form) {
  constexpr int64_t kExperts = 2;
  const std::string experts = std::string(kLayer) + "mlp.experts.{expert}.";
  const std::vector<std::string> parts = {experts + "gate_proj.weight", experts + "up_proj.weight"};
  const auto rule = [](const std::string& name, const std::string& tensor) {
    return StoredRule{.name = name, .tensor = tensor, .transposed = true, .either_way = true};
  };
  std::vector<StoredRule> rules = {rule(experts + "down_proj.weight", "h.{layer}.down")};
  for (const std::string& part : parts) {
    rules.push_back(rule(part, "h.{layer}.gate_up"));
    rules.back().fusion = StoredFusion::kStacked;
    rules.back().parts = parts;
  }
  Family family{SmallSpec(kHeads, std::move(rules)), {}, {}};
  for (LayerSpec& layer : family.spec.layers) {
    layer.experts = {.num_experts = kExperts, .intermediate_size = 5, .routing = {.top_k = 1}};
  }
  family.logical = LogicalTensors(ParameterTable(family.spec));
  family.stored = family.logical;
  NamedTensors& stored = family.stored;
  for (int64_t i = 0; i < 2 && form != Experts::kSingle; ++i) {
    std::vector<at::Tensor> gate_up, down;
    for (int64_t e = 0; e < kExperts; ++e) {
      const std::string expert = "mlp.experts." + std::to_string(e) + ".";
      const at::Tensor gate = Take(stored, Layer(i, expert + "gate_proj.weight"));
      gate_up.push_back(at::cat({gate, Take(stored, Layer(i, expert + "up_proj.weight"))}));
      down.push_back(Take(stored, Layer(i, expert + "down_proj.weight")));
    }
    const std::string block = "h." + std::to_string(i) + ".";
    const auto as_stored = [&](const std::vector<at::Tensor>& of_experts) {
      const at::Tensor all = at::stack(of_experts);
      return form == Experts::kTransposed ? all.transpose(1, 2) : all;
    };
    stored[block + "gate_up"] = as_stored(gate_up);
    stored[block + "down"] = as_stored(down);
  }
  return family;
}

Family TransposedExpertsFamily() { return EitherWayFamily(Experts::kTransposed); }
Family UprightExpertsFamily() { return EitherWayFamily(Experts::kUpright); }
Family SingleExpertsFamily() { return EitherWayFamily(Experts::kSingle); }

io::ModelFolder WriteFolder(const TempFolder& folder, const NamedTensors& tensors) {
  folder.Write("config.json", "{}");
  EXPECT_OK(WriteTensors(folder.path(), tensors));
  auto opened = io::ModelFolder::Open(folder.path());
  EXPECT_OK(opened);
  return *std::move(opened);
}

// The part of a logical tensor that the segment's rank holds.
at::Tensor PartOfTensor(const at::Tensor& logical, const Segment& segment) {
  at::Tensor part = logical;
  for (size_t d = 0; d < segment.shape.size(); ++d) {
    part = part.narrow(static_cast<int64_t>(d), segment.start[d], segment.shape[d]);
  }
  return part;
}

// Expects that the folder's parameters are the logical tensors, on each of `ranks` ranks.
void ExpectLoads(const Family& family, const io::ModelFolder& folder, int ranks,
                 at::ScalarType dtype) {
  for (int rank = 0; rank < ranks; ++rank) {
    const ParameterTable table(family.spec, {}, {rank, ranks});
    Arena arena(table, dtype);
    ASSERT_OK(LoadParameters(folder, arena));
    for (size_t i = 0; i < table.segments().size(); ++i) {
      const Segment& segment = table.segment(table.segments()[i]);
      const at::Tensor expected = PartOfTensor(family.logical.at(segment.name), segment);
      const at::Tensor found = arena.SegmentTensor(i);
      const bool in_float32 = table.parameter(table.segments()[i].parameter).in_float32;
      EXPECT_EQ(found.scalar_type(), in_float32 ? at::kFloat : dtype) << segment.name;
      EXPECT_TRUE(at::equal(found, expected.to(found.scalar_type())))
          << segment.name << " of rank " << rank << " of " << ranks;
    }
  }
}

class StoredFolder : public ::testing::TestWithParam<Family (*)()> {};

TEST_P(StoredFolder, LoadsOnOneRankAndOnTwo) {
  const Family family = GetParam()();
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, family.stored);

  ExpectLoads(family, folder, 1, at::kFloat);
  ExpectLoads(family, folder, 1, at::kBFloat16);
  ExpectLoads(family, folder, 2, at::kFloat);
}

TEST_P(StoredFolder, IsWrittenByteForByte) {
  const Family family = GetParam()();
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, family.stored);
  const ParameterTable table(family.spec);
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, StoredLayout::Create(table, &folder));
  const TempFolder out;
  io::ModelFolderWriter::Options options;
  options.source_folder = temp.path();

  ASSERT_OK_AND_ASSIGN(
      StoredWriter writer,
      StoredWriter::Create(out / "model", layout, io::DType::kF32, &folder, options));
  ASSERT_OK(ForStoredPieces(layout, 7, [&](const StoredPiece& piece) -> absl::Status {
    const at::Tensor elements = family.logical.at(layout.parameters()[piece.parameter].name)
                                    .flatten()
                                    .narrow(0, piece.first, piece.count);
    return writer.Append(piece, {static_cast<const std::byte*>(elements.const_data_ptr()),
                                 static_cast<size_t>(elements.nbytes())});
  }));
  ASSERT_OK(writer.Commit());

  ASSERT_OK_AND_ASSIGN(const io::ModelFolder written, io::ModelFolder::Open(out / "model"));
  EXPECT_EQ(written.names().size(), family.stored.size());
  EXPECT_EQ(writer.size_bytes(), folder.size_bytes());
  for (const auto& [name, tensor] : family.stored) {
    ASSERT_OK_AND_ASSIGN(const io::TensorView view, written.Find(name));
    EXPECT_EQ(view.shape, tensor.sizes().vec()) << name;
    EXPECT_TRUE(at::equal(ToTensor(view), tensor)) << name;
  }
}

constexpr const char* kFamilyNames[] = {"Gpt2",       "Falcon",  "GptOss",
                                        "HubQwen3Vl", "Qwen3Vl", "Qwen35"};

INSTANTIATE_TEST_SUITE_P(Families, StoredFolder,
                         ::testing::Values(&TransposedFamily, &GroupedFamily, &ExpertsFamily,
                                           &TransposedExpertsFamily, &UprightExpertsFamily,
                                           &SingleExpertsFamily),
                         [](const auto& info) { return kFamilyNames[info.index]; });

// The Hub's GPT-2 has no "transformer.", but buffers of masks.
TEST(StoredFolderPrefix, MayBeMissingFromAllTensors) {
  Family family = TransposedFamily();
  family.spec.ignored_tensors = {"transformer.h.*.attn.bias"};
  NamedTensors without;
  for (const auto& [name, tensor] : family.stored) {
    without[name.rfind("transformer.", 0) == 0 ? name.substr(12) : name] = tensor;
  }
  without["h.0.attn.bias"] = at::zeros({1, 1, 4, 4});
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, without);

  ExpectLoads(family, folder, 1, at::kFloat);
  const ParameterTable table(family.spec);
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, StoredLayout::Create(table, &folder));
  EXPECT_EQ(layout.tensors()[0].name, "wte.weight");
}

TEST(StoredFolderPrefix, MayBeInFrontOfNamesWithoutIt) {
  Family family = GroupedFamily();
  family.spec.optional_prefixes = {"text."};
  NamedTensors with;
  for (const auto& [name, tensor] : family.stored) {
    with[name == "lm_head.weight" ? name : "text." + name] = tensor;
  }
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, with);

  ExpectLoads(family, folder, 1, at::kFloat);
}

TEST(StoredFolderPrefix, MayBeBehindThatOfTheModel) {
  Family family{SmallSpec(kHeads, {}), {}, {}};
  family.spec.optional_prefixes = {"language_model."};
  family.logical = LogicalTensors(ParameterTable(family.spec));
  NamedTensors inside;
  for (const auto& [name, tensor] : family.logical) {
    inside[absl::StartsWith(name, "model.") ? "model.language_model." + name.substr(6) : name] =
        tensor;
  }
  EXPECT_EQ(inside.count("model.language_model.norm.weight"), 1);
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, inside);

  ExpectLoads(family, folder, 1, at::kFloat);
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(ParameterTable(family.spec), &folder));
  for (const StoredTensor& tensor : layout.tensors()) EXPECT_EQ(inside.count(tensor.name), 1);
}

TEST(StoredFolderPrefix, MayBeBehindItsOwnFirstPart) {
  Family family{SmallSpec(kHeads, {}), {}, {}};
  family.spec.optional_prefixes = {"model.layers.inner."};
  family.logical = LogicalTensors(ParameterTable(family.spec));
  NamedTensors within;
  for (const auto& [name, tensor] : family.logical) {
    within[absl::StartsWith(name, "model.layers.") ? "model.layers.inner." + name.substr(13)
                                                   : name] = tensor;
  }
  EXPECT_EQ(within.count("model.layers.inner.0.input_layernorm.weight"), 1);
  EXPECT_EQ(within.count("model.norm.weight"), 1);
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, within);

  ExpectLoads(family, folder, 1, at::kFloat);
}

TEST(StoredFolderErrors, NameTheFilesTensorItsShapesAndTheParameters) {
  const Family family = TransposedFamily();
  NamedTensors stored = family.stored;
  stored["transformer.h.0.attn.c_attn.weight"] = stored["transformer.h.0.attn.c_attn.weight"].t();
  stored.erase("transformer.h.1.mlp.c_proj.weight");
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, stored);
  const ParameterTable table(family.spec);
  Arena arena(table, at::kFloat);

  EXPECT_THAT(LoadParameters(folder, arena),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("transformer.h.0.attn.c_attn.weight "
                                       "(model.layers.0.self_attn.q_proj.weight, "),
                             HasSubstr("shape [24, 6] where [6, 24] was expected"),
                             HasSubstr("1 missing: transformer.h.1.mlp.c_proj.weight "
                                       "(model.layers.1.mlp.down_proj.weight)"))));
}

// Neither way: as the rule has it.
TEST(StoredFolderErrors, NameTheShapeOfTheRuleForATensorThatFitsNeitherWay) {
  const Family family = UprightExpertsFamily();
  NamedTensors stored = family.stored;
  stored["h.0.down"] = at::zeros({2, 6, 4});
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, stored);
  const ParameterTable table(family.spec);
  Arena arena(table, at::kFloat);

  EXPECT_THAT(LoadParameters(folder, arena),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("shape [2, 6, 4] where [2, 5, 6] was expected")));
}

TEST(StoredFolderConstants, MayBeMissingButNotDiffer) {
  Family family = GroupedFamily();
  family.stored.erase("h.0.beta");
  {
    const TempFolder temp;
    ExpectLoads(family, WriteFolder(temp, family.stored), 1, at::kFloat);
  }
  family.stored["h.1.beta"] = at::full({}, 0.75f);
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, family.stored);
  const ParameterTable table(family.spec);
  Arena arena(table, at::kFloat);
  EXPECT_THAT(
      LoadParameters(folder, arena),
      StatusIs(absl::StatusCode::kUnimplemented, AllOf(HasSubstr("h.1.beta"), HasSubstr("0.5"))));
}

// OPT's learned positions begin at row 2.
TEST(StoredFolderGaps, AreCopiedFromTheSourceOrZero) {
  StoredRule rule{"model.norm.weight", "decoder.norm.weight"};
  rule.skip_rows = 2;
  const ModelSpec spec = SmallSpec(kHeads, {rule});
  const ParameterTable table(spec);
  NamedTensors stored = LogicalTensors(table);
  const at::Tensor norm = Take(stored, "model.norm.weight");
  stored["decoder.norm.weight"] = at::cat({at::full({2}, 7.0f), norm});
  const TempFolder temp;
  const io::ModelFolder folder = WriteFolder(temp, stored);
  ExpectLoads({spec, LogicalTensors(table), stored}, folder, 1, at::kFloat);

  ASSERT_OK_AND_ASSIGN(const StoredLayout layout,
                       StoredLayout::Create(spec, {{"model.norm.weight", {kHidden}}}, nullptr));
  for (const bool has_source : {true, false}) {
    const TempFolder out;
    ASSERT_OK_AND_ASSIGN(StoredWriter writer,
                         StoredWriter::Create(out / "model", layout, io::DType::kF32,
                                              has_source ? &folder : nullptr, {}));
    ASSERT_OK(ForStoredPieces(layout, 4, [&](const StoredPiece& piece) -> absl::Status {
      const at::Tensor elements = norm.narrow(0, piece.first, piece.count);
      return writer.Append(piece, {static_cast<const std::byte*>(elements.const_data_ptr()),
                                   static_cast<size_t>(elements.nbytes())});
    }));
    ASSERT_OK(writer.Commit());
    ASSERT_OK_AND_ASSIGN(const io::ModelFolder written, io::ModelFolder::Open(out / "model"));
    ASSERT_OK_AND_ASSIGN(const io::TensorView view, written.Find("decoder.norm.weight"));
    EXPECT_TRUE(
        at::equal(ToTensor(view), at::cat({at::full({2}, has_source ? 7.0f : 0.0f), norm})));
  }
}

// Tied to a head that the folder stores transposed: the same elements, other bytes.
TEST(StoredFolderTies, CompareElementsNotBytes) {
  ModelSpec spec = SmallSpec(kHeads, {{"lm_head.weight", "head", StoredFusion::kNone, {}, true}});
  spec.tie_word_embeddings = true;
  const ParameterTable table(spec);
  NamedTensors stored = LogicalTensors(table);
  const at::Tensor embedding = stored.at("model.embed_tokens.weight");
  Arena arena(table, at::kFloat);

  stored["head"] = embedding.t();
  {
    const TempFolder temp;
    EXPECT_OK(LoadParameters(WriteFolder(temp, stored), arena));
  }
  {
    NamedTensors head_alone = stored;
    head_alone.erase("model.embed_tokens.weight");
    const TempFolder temp;
    ASSERT_OK(LoadParameters(WriteFolder(temp, head_alone), arena));
    EXPECT_TRUE(at::equal(arena.Get(table.embedding()), embedding));
  }
  stored["head"] = (embedding + 1).t();
  const TempFolder temp;
  EXPECT_THAT(LoadParameters(WriteFolder(temp, stored), arena),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("ties head to")));
}

}  // namespace
}  // namespace tandem::model
