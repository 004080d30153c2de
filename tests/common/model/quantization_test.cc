// Quantised tensors against the values that transformers computes of them
// (tests/parity/quantized_golden.py) and LibTorch's casts; whole folders of them, and damaged ones.
#include "common/model/quantization/quantization.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "common/model/arena.h"
#include "common/model/load_parameters.h"
#include "common/model/stored_layout.h"
#include "common/model/stored_source.h"
#include "common/model/stored_writer.h"
#include "common/telemetry/log.h"
#include "tests/common/model/tensor_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace tandem::model {
namespace {

using nlohmann::json;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TempFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsNull;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

json Fp8Config(int64_t rows = 0, int64_t columns = 0) {
  json settings = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
  if (rows > 0) settings["weight_block_size"] = {rows, columns};
  return {{"quantization_config", settings}};
}

json Mxfp4Config() { return {{"quantization_config", {{"quant_method", "mxfp4"}}}}; }

absl::Status ErrorOf(const json& config) {
  return ReadQuantization(config, "m/config.json").status();
}

TEST(ReadQuantization, IsNullForAPlainModel) {
  for (const json& config : {json::object(), json{{"quantization_config", nullptr}}}) {
    ASSERT_OK_AND_ASSIGN(const auto quantization, ReadQuantization(config, "m/config.json"));
    EXPECT_THAT(quantization, IsNull());
  }
}

TEST(ReadQuantization, RefusesAnUnknownMethodByNameAndSaysWhatToDo) {
  EXPECT_THAT(
      ErrorOf({{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}}),
      StatusIs(absl::StatusCode::kUnimplemented,
               AllOf(HasSubstr("m/config.json: quantization_config: \"quant_method\" is \"gptq\""),
                     HasSubstr("supported: fp8, mxfp4; "), HasSubstr("model.dequantize()"))));
  EXPECT_THAT(ErrorOf({{"quantization_config", {{"bits", 4}}}}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("\"quant_method\" is absent")));
}

TEST(ReadQuantization, RefusesValuesThatNoMethodHas) {
  EXPECT_THAT(ErrorOf({{"quantization_config", "fp8"}}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("must be an object")));
  for (const json& block : {json(128), json{128}, json{0, 128}, json{128, "128"}}) {
    json config = Fp8Config();
    config["quantization_config"]["weight_block_size"] = block;
    EXPECT_THAT(ErrorOf(config), StatusIs(absl::StatusCode::kInvalidArgument,
                                          HasSubstr("\"weight_block_size\" must be")))
        << block;
  }
}

// A folder with these tensors, and one tensor of it as loading sees it.
class QuantizedFolder {
 public:
  QuantizedFolder(const json& config, const NamedTensors& tensors) : QuantizedFolder(config) {
    EXPECT_OK(WriteTensors(temp_.path(), tensors));
  }
  // The tensors of a golden file.
  QuantizedFolder(const json& config, const std::filesystem::path& file) : QuantizedFolder(config) {
    std::filesystem::copy_file(file, temp_ / "model.safetensors");
  }

  const std::string& path() const { return temp_.path(); }

  io::ModelFolder Open() const {
    auto folder = io::ModelFolder::Open(temp_.path());
    EXPECT_OK(folder);
    return *std::move(folder);
  }

  // All elements of a tensor, `at_once` at a time.
  absl::StatusOr<at::Tensor> Read(const std::string& name, const std::vector<int64_t>& shape,
                                  at::ScalarType dtype = at::kFloat,
                                  int64_t at_once = 1 << 20) const {
    const io::ModelFolder folder = Open();
    ASSIGN_OR_RETURN(const auto quantization,
                     ReadQuantization(folder.config().json, folder.config().path));
    const StoredView view{name, shape, 0, 0, {NumElements(shape)}, {1}};
    ASSIGN_OR_RETURN(const StoredSource source,
                     StoredSource::Find(folder, {&view, 1}, quantization.get()));
    at::Tensor out = at::empty(shape, dtype);
    auto* const bytes = static_cast<std::byte*>(out.mutable_data_ptr());
    for (int64_t first = 0; first < out.numel(); first += at_once) {
      RETURN_IF_ERROR(source.Copy(first, std::min(at_once, out.numel() - first), dtype,
                                  bytes + first * static_cast<int64_t>(out.element_size())));
    }
    source.ReleasePages();
    return out;
  }

 private:
  explicit QuantizedFolder(const json& config) { temp_.Write("config.json", config.dump()); }

  TempFolder temp_;
};

std::filesystem::path GoldenFile(const std::string& name) {
  const char* source = std::getenv("TANDEM_SOURCE");
  return std::filesystem::path(source == nullptr ? "." : source) /
         "tests/common/model/golden/quantized" / name;
}

// Also the sign of zeros. NaN is any NaN.
void ExpectSameNumbers(const at::Tensor& found, const at::Tensor& expected) {
  ASSERT_EQ(found.sizes(), expected.sizes());
  EXPECT_TRUE(at::equal(found.isnan(), expected.isnan()));
  EXPECT_TRUE(at::equal(found.nan_to_num(), expected.nan_to_num()));
  EXPECT_TRUE(at::equal(found.signbit().logical_and(found == 0),
                        expected.signbit().logical_and(expected == 0)));
}

// Expects the golden file's NAME.expected for each of its tensors, read whole and in pieces.
void ExpectGolden(const json& config, const std::string& file) {
  const QuantizedFolder folder(config, GoldenFile(file));
  const io::ModelFolder opened = folder.Open();
  int compared = 0;
  for (const std::string& name : opened.names()) {
    if (!absl::EndsWith(name, ".expected")) continue;
    SCOPED_TRACE(absl::StrCat(file, ": ", name));
    ASSERT_OK_AND_ASSIGN(const io::TensorView view, opened.Find(name));
    const at::Tensor expected = ToTensor(view);
    const std::string tensor = name.substr(0, name.size() - 9);
    for (const int64_t at_once : {int64_t{1} << 20, int64_t{7}, int64_t{1}}) {
      ASSERT_OK_AND_ASSIGN(const at::Tensor found,
                           folder.Read(tensor, view.shape, at::kFloat, at_once));
      ExpectSameNumbers(found, expected);
    }
    ASSERT_OK_AND_ASSIGN(const at::Tensor half, folder.Read(tensor, view.shape, at::kBFloat16));
    ExpectSameNumbers(half, expected.to(at::kBFloat16));
    ++compared;
  }
  EXPECT_GE(compared, 2);
}

TEST(Fp8, ValuesAreThoseOfTransformers) {
  ExpectGolden(Fp8Config(4, 8), "fp8_blocks.safetensors");
  ExpectGolden(Fp8Config(), "fp8_matrices.safetensors");
}

TEST(Mxfp4, ValuesAreThoseOfTransformers) { ExpectGolden(Mxfp4Config(), "mxfp4.safetensors"); }

at::Tensor Random8Bits(at::IntArrayRef shape) { return at::randn(shape).to(at::kFloat8_e4m3fn); }

// Repeats each scale over its block.
at::Tensor Repeat(const at::Tensor& scales, int64_t rows, int64_t columns, at::IntArrayRef shape) {
  return scales.to(at::kFloat)
      .repeat_interleave(rows, 0)
      .repeat_interleave(columns, 1)
      .narrow(0, 0, shape[0])
      .narrow(1, 0, shape[1]);
}

TEST(Fp8, ABlockAtTheEdgeHasWhatIsLeft) {
  at::manual_seed(1);
  const at::Tensor elements = Random8Bits({130, 257});
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kFloat8_e8m0fnu}) {
    const at::Tensor scales = (at::rand({2, 3}) * 0.1).to(type);
    const QuantizedFolder folder(Fp8Config(128, 128),
                                 {{"x.weight", elements}, {"x.weight_scale_inv", scales}});
    const at::Tensor expected =
        elements.to(at::kFloat) * Repeat(scales, 128, 128, elements.sizes());
    for (const int64_t at_once : {1 << 20, 100}) {
      ASSERT_OK_AND_ASSIGN(const at::Tensor found,
                           folder.Read("x.weight", {130, 257}, at::kFloat, at_once));
      EXPECT_TRUE(at::equal(found, expected)) << type;
    }
  }
}

TEST(Fp8, AScaleForTheMatrixMayHaveAnyShapeOfOneElement) {
  const at::Tensor elements = Random8Bits({3, 5});
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {1}, {1, 1}}) {
    for (const char* suffix : {"_scale_inv", "_scale"}) {
      const QuantizedFolder folder(
          Fp8Config(),
          {{"x.weight", elements}, {absl::StrCat("x.weight", suffix), at::full(shape, 0.37F)}});
      ASSERT_OK_AND_ASSIGN(const at::Tensor found, folder.Read("x.weight", {3, 5}));
      EXPECT_TRUE(at::equal(found, elements.to(at::kFloat) * 0.37F));
    }
  }
}

TEST(Fp8, ATensorThatIsNotConvertedIsReadAsItIs) {
  const at::Tensor plain = at::randn({3, 5}).to(at::kBFloat16);
  const QuantizedFolder folder(Fp8Config(128, 128), {{"x.weight", plain}});
  ASSERT_OK_AND_ASSIGN(const at::Tensor found, folder.Read("x.weight", {3, 5}, at::kBFloat16));
  EXPECT_TRUE(at::equal(found, plain));
}

// A small Llama. GPT-2's transposed layout for its down matrix.
ModelSpec DenseSpec() {
  ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 11;
  spec.hidden_size = 12;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 10;
  layer.attention.num_heads = 4;
  layer.attention.num_kv_heads = 2;
  layer.attention.head_dim = 4;
  spec.layers.assign(2, layer);
  spec.stored_rules = {{"model.layers.{layer}.mlp.down_proj.weight",
                        "model.layers.{layer}.mlp.out",
                        StoredFusion::kNone,
                        {},
                        true}};
  return spec;
}

struct Model {
  ModelSpec spec;
  NamedTensors stored;
  NamedTensors logical;  // what loading gives, in float32
};

// Layer matrices in blocks of 4 x 3, the last layer's query left as it is.
Model DenseModel() {
  at::manual_seed(5);
  Model model{DenseSpec(), {}, {}};
  const ParameterTable table(model.spec);
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    const std::string& name = table.segment(ref).name;
    const std::vector<int64_t>& shape = table.segment(ref).global_shape;
    const bool converted =
        absl::StrContains(name, "_proj") && name != "model.layers.1.self_attn.q_proj.weight";
    if (!converted) {
      model.stored[name] = at::randn(shape).to(at::kBFloat16);
      model.logical[name] = model.stored[name].to(at::kFloat);
      continue;
    }
    const bool transposed = absl::StrContains(name, "down_proj");
    const std::string tensor =
        transposed ? absl::StrCat(name.substr(0, name.find("down_proj")), "out") : name;
    const std::vector<int64_t> in_folder =
        transposed ? std::vector<int64_t>{shape[1], shape[0]} : shape;
    const at::Tensor elements = Random8Bits(in_folder);
    const at::Tensor scales =
        at::rand({(in_folder[0] + 3) / 4, (in_folder[1] + 2) / 3}).to(at::kBFloat16);
    model.stored[tensor] = elements;
    model.stored[absl::StrCat(tensor, "_scale_inv")] = scales;
    const at::Tensor values = elements.to(at::kFloat) * Repeat(scales, 4, 3, in_folder);
    model.logical[name] = transposed ? values.t().contiguous() : values;
  }
  return model;
}

// Two layers of experts as gpt-oss stores them: all experts' gate and up in turn, transposed.
Model ExpertModel() {
  constexpr int64_t kExperts = 3;
  constexpr int64_t kHidden = 64;
  constexpr int64_t kIntermediate = 32;
  at::manual_seed(6);
  Model model{DenseSpec(), {}, {}};
  ModelSpec& spec = model.spec;
  spec.hidden_size = kHidden;
  const std::string experts = "model.layers.{layer}.mlp.experts.";
  const std::string gate = experts + "{expert}.gate_proj.weight";
  const std::string up = experts + "{expert}.up_proj.weight";
  const std::string down = experts + "{expert}.down_proj.weight";
  spec.stored_rules.clear();
  for (const std::string& part : {gate, up}) {
    spec.stored_rules.push_back(
        {part, experts + "gate_up_proj", StoredFusion::kAlternating, {gate, up}, true});
  }
  spec.stored_rules.push_back({down, experts + "down_proj", StoredFusion::kNone, {}, true});
  for (LayerSpec& layer : spec.layers) {
    ExpertSpec& of_layer = layer.experts.emplace();
    of_layer.num_experts = kExperts;
    of_layer.intermediate_size = kIntermediate;
    of_layer.routing.top_k = 2;
  }
  const ParameterTable table(spec);
  for (const ParameterTable::SegmentRef ref : table.segments()) {
    const std::string& name = table.segment(ref).name;
    if (absl::StrContains(name, ".experts.")) continue;
    model.stored[name] = at::randn(table.segment(ref).global_shape).to(at::kBFloat16);
    model.logical[name] = model.stored[name].to(at::kFloat);
  }
  const at::Tensor values = at::tensor(
      {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0},
      at::kFloat);
  for (int layer = 0; layer < 2; ++layer) {
    const std::string block = absl::StrCat("model.layers.", layer, ".mlp.experts.");
    const auto quantized = [&](const std::string& name, int64_t rows, int64_t columns) {
      const at::Tensor codes = at::randint(16, {kExperts, rows, columns}, at::kLong);
      const at::Tensor scales = at::randint(110, 130, {kExperts, rows, columns / 32}, at::kLong);
      const at::Tensor pairs = codes.reshape({kExperts, rows, columns / 32, 16, 2});
      model.stored[absl::StrCat(block, name, "_blocks")] =
          (pairs.select(-1, 0) + 16 * pairs.select(-1, 1)).to(at::kByte);
      model.stored[absl::StrCat(block, name, "_scales")] = scales.to(at::kByte);
      const at::Tensor powers = at::pow(2.0, (scales - 127).to(at::kFloat));
      return values.index({codes}) * powers.repeat_interleave(32, -1);
    };
    const at::Tensor gate_up = quantized("gate_up_proj", 2 * kIntermediate, kHidden);
    const at::Tensor downs = quantized("down_proj", kHidden, kIntermediate);
    for (int64_t e = 0; e < kExperts; ++e) {
      const std::string expert = absl::StrCat(block, e, ".");
      model.logical[expert + "gate_proj.weight"] = gate_up[e].slice(0, 0, 2 * kIntermediate, 2);
      model.logical[expert + "up_proj.weight"] = gate_up[e].slice(0, 1, 2 * kIntermediate, 2);
      model.logical[expert + "down_proj.weight"] = downs[e];
    }
  }
  return model;
}

struct Case {
  const char* name;
  Model (*model)();
  json config;
};

class QuantizedModel : public ::testing::TestWithParam<Case> {};

TEST_P(QuantizedModel, LoadsOnOneRankAndOnTwo) {
  const Model model = GetParam().model();
  const QuantizedFolder files(GetParam().config, model.stored);
  const io::ModelFolder folder = files.Open();
  for (const int ranks : {1, 2}) {
    for (int rank = 0; rank < ranks; ++rank) {
      const ParameterTable table(model.spec, {}, {rank, ranks});
      for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
        Arena arena(table, dtype);
        ASSERT_OK(LoadParameters(folder, arena));
        for (size_t i = 0; i < table.segments().size(); ++i) {
          const Segment& segment = table.segment(table.segments()[i]);
          at::Tensor expected = model.logical.at(segment.name);
          for (size_t d = 0; d < segment.shape.size(); ++d) {
            expected = expected.narrow(static_cast<int64_t>(d), segment.start[d], segment.shape[d]);
          }
          EXPECT_TRUE(at::equal(arena.SegmentTensor(i), expected.to(dtype)))
              << segment.name << " of rank " << rank << " of " << ranks;
        }
      }
    }
  }
}

// As FSDP's ranks read: any range of a parameter, whatever blocks it crosses.
TEST_P(QuantizedModel, AnyRangeIsThatOfTheWhole) {
  const Model model = GetParam().model();
  const QuantizedFolder files(GetParam().config, model.stored);
  const io::ModelFolder folder = files.Open();
  const ParameterTable table(model.spec);
  std::mt19937 random(3);
  ASSERT_OK(LoadParameters(
      folder, table,
      [&](ParameterTable::SegmentRef ref, const StoredSource& source) -> absl::Status {
        const at::Tensor whole = model.logical.at(table.segment(ref).name).flatten();
        for (int i = 0; i < 20; ++i) {
          const auto first = static_cast<int64_t>(random() % whole.numel());
          const auto count = static_cast<int64_t>(random() % (whole.numel() - first) + 1);
          at::Tensor part = at::empty({count});
          RETURN_IF_ERROR(source.Copy(first, count, at::kFloat, part.mutable_data_ptr()));
          EXPECT_TRUE(at::equal(part, whole.narrow(0, first, count)))
              << table.segment(ref).name << " [" << first << ", " << first + count << ")";
        }
        return absl::OkStatus();
      }));
}

std::vector<std::string>& LogLines() {
  static std::vector<std::string> lines;
  return lines;
}

TEST_P(QuantizedModel, IsExportedUnquantizedWithALogLine) {
  const Model model = GetParam().model();
  const QuantizedFolder files(GetParam().config, model.stored);
  const io::ModelFolder folder = files.Open();
  const ParameterTable table(model.spec);
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, StoredLayout::Create(table, &folder));
  const TempFolder out;
  LogLines().clear();
  telemetry::SetLogSink([](absl::string_view line) { LogLines().emplace_back(line); });
  ASSERT_OK_AND_ASSIGN(StoredWriter writer,
                       StoredWriter::Create(out / "model", layout, io::DType::kF32, &folder,
                                            {.source_folder = files.path()}));
  telemetry::SetLogSink(nullptr);
  ASSERT_OK(ForStoredPieces(layout, 50, [&](const StoredPiece& piece) {
    const at::Tensor elements = model.logical.at(layout.parameters()[piece.parameter].name)
                                    .flatten()
                                    .narrow(0, piece.first, piece.count);
    return writer.Append(piece, {static_cast<const std::byte*>(elements.const_data_ptr()),
                                 static_cast<size_t>(elements.nbytes())});
  }));
  ASSERT_OK(writer.Commit());

  ASSERT_EQ(LogLines().size(), 1u);
  EXPECT_THAT(LogLines()[0],
              AllOf(HasSubstr("the export is not quantised"), HasSubstr("dtype=float32"),
                    HasSubstr(absl::StrCat("method=", GetParam().name))));
  ASSERT_OK_AND_ASSIGN(const io::ModelFolder written, io::ModelFolder::Open(out / "model"));
  EXPECT_FALSE(written.config().fields().Has("quantization_config"));
  Arena arena(table, at::kFloat);
  ASSERT_OK(LoadParameters(written, arena));
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const std::string& name = table.segment(table.segments()[i]).name;
    EXPECT_TRUE(at::equal(arena.SegmentTensor(i), model.logical.at(name))) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, QuantizedModel,
                         ::testing::Values(Case{"fp8", &DenseModel, Fp8Config(4, 3)},
                                           Case{"mxfp4", &ExpertModel, Mxfp4Config()}),
                         [](const auto& info) { return std::string(info.param.name); });

absl::Status LoadError(const Model& model, const json& config) {
  const QuantizedFolder files(config, model.stored);
  const io::ModelFolder folder = files.Open();
  const ParameterTable table(model.spec);
  Arena arena(table, at::kFloat);
  return LoadParameters(folder, arena);
}

TEST(Fp8, ScalesOfActivationsAreLeftOut) {
  Model model = DenseModel();
  model.stored["model.layers.0.self_attn.q_proj.activation_scale"] = at::ones({});
  model.stored["model.layers.0.self_attn.q_proj.input_scale"] = at::ones({1});
  EXPECT_OK(LoadError(model, Fp8Config(4, 3)));
  EXPECT_THAT(LoadError(model, json::object()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("unexpected")))
      << "a folder that does not say that it is quantised";
}

constexpr char kKey[] = "model.layers.0.self_attn.k_proj.weight";  // [8, 12]: 2 x 4 blocks

TEST(DamagedFp8, NamesTheMissingOrMisshapenScale) {
  const std::string scale = absl::StrCat(kKey, "_scale_inv");
  Model model = DenseModel();
  model.stored.erase(scale);
  EXPECT_THAT(LoadError(model, Fp8Config(4, 3)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(absl::StrCat("1 missing: ", scale, ", of ", kKey))));
  model.stored[scale] = at::ones({4, 2});
  EXPECT_THAT(
      LoadError(model, Fp8Config(4, 3)),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               HasSubstr(absl::StrCat(scale, ", of ", kKey, ": shape [4, 2] where [2, 4]"))));
  model.stored[scale] = at::ones({2, 4}, at::kHalf);
  EXPECT_THAT(LoadError(model, Fp8Config(4, 3)),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("model.safetensors: tensor "), HasSubstr(scale),
                             HasSubstr("F16; expected F32 or BF16 or F8_E8M0 or U8"))));
}

TEST(DamagedFp8, NamesAScaleWithoutItsElements) {
  Model model = DenseModel();
  model.stored[kKey] = at::zeros({8, 12}, at::kBFloat16);
  EXPECT_THAT(LoadError(model, Fp8Config(4, 3)),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr(absl::StrCat("1 unexpected: ", kKey, "_scale_inv"))));
}

TEST(DamagedFp8, RefusesScalesThatAreNoFiniteFactors) {
  const std::string scale = absl::StrCat(kKey, "_scale_inv");
  for (const float value : {std::nanf(""), kInfinity, -1.0F}) {
    Model model = DenseModel();
    model.stored[scale] = model.stored[scale].to(at::kFloat);
    model.stored[scale][1][2] = value;
    EXPECT_THAT(LoadError(model, Fp8Config(4, 3)),
                StatusIs(absl::StatusCode::kDataLoss,
                         AllOf(HasSubstr("model.safetensors: tensor "), HasSubstr(scale),
                               HasSubstr("element 6 is "), HasSubstr("finite scale"))));
  }
}

constexpr char kExperts[] = "model.layers.1.mlp.experts.down_proj";

TEST(DamagedMxfp4, NamesTheMissingOrMisshapenPart) {
  const Model whole = ExpertModel();
  for (const char* suffix : {"_blocks", "_scales"}) {
    const std::string part = absl::StrCat(kExperts, suffix);
    Model model = whole;
    model.stored.erase(part);
    EXPECT_THAT(LoadError(model, Mxfp4Config()),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         HasSubstr(absl::StrCat("1 missing: ", part, ", of ", kExperts))));
    model.stored[part] = at::zeros({3, 64, 2}, at::kByte);
    EXPECT_THAT(LoadError(model, Mxfp4Config()),
                StatusIs(absl::StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr(part), HasSubstr("shape [3, 64, 2] where [3, 64, 1"))));
    model.stored[part] = at::zeros_like(whole.stored.at(part), at::kLong);
    EXPECT_THAT(LoadError(model, Mxfp4Config()),
                StatusIs(absl::StatusCode::kUnimplemented,
                         AllOf(HasSubstr(absl::StrCat("model.safetensors: tensor ", part)),
                               HasSubstr("I64; expected U8"))));
  }
}

TEST(DamagedMxfp4, RefusesNaNScales) {
  Model model = ExpertModel();
  const std::string scales = absl::StrCat(kExperts, "_scales");
  model.stored[scales][2][63][0] = 255;
  EXPECT_THAT(LoadError(model, Mxfp4Config()),
              StatusIs(absl::StatusCode::kDataLoss,
                       AllOf(HasSubstr(absl::StrCat("model.safetensors: tensor ", scales)),
                             HasSubstr("element 191 is 255"))));
}

TEST(DamagedMxfp4, RefusesMatricesThatDoNotSplitIntoGroups) {
  const QuantizedFolder folder(Mxfp4Config(), {{"x_blocks", at::zeros({1, 4, 1, 16}, at::kByte)},
                                               {"x_scales", at::zeros({1, 4, 1}, at::kByte)}});
  EXPECT_THAT(folder.Read("x", {1, 30, 4}),
              StatusIs(absl::StatusCode::kUnimplemented, HasSubstr("x, [1, 30, 4], is stored in")));
}

}  // namespace
}  // namespace tandem::model
