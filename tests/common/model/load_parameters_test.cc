#include "common/model/load_parameters.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/model/arena.h"
#include "common/model/compare_parameters.h"
#include "common/model/random_init.h"
#include "common/model/stored_layout.h"
#include "tests/common/model/tensor_files.h"
#include "tests/support/status_matchers.h"

namespace tandem::model {
namespace {

using ::tandem::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

ModelSpec TinySpec(bool tied = false) {
  ModelSpec spec;
  spec.architecture = "LlamaForCausalLM";
  spec.vocab_size = 11;
  spec.hidden_size = 4;
  spec.tie_word_embeddings = tied;
  LayerSpec layer;
  layer.feed_forward.intermediate_size = 6;
  layer.attention.num_heads = 2;
  layer.attention.num_kv_heads = 1;
  layer.attention.head_dim = 2;
  spec.layers.assign(1, layer);
  return spec;
}

// A model folder in a temporary directory, made of named tensors.
class LoadParametersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    path_ = std::filesystem::path(::testing::TempDir()) / (std::string("load_") + info->name());
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
    std::ofstream(path_ / "config.json") << "{}";
  }
  void TearDown() override { std::filesystem::remove_all(path_); }

  // What a folder of the model holds, random.
  static std::map<std::string, at::Tensor> Tensors(const ParameterTable& table) {
    at::manual_seed(3);
    std::map<std::string, at::Tensor> tensors;
    for (const ParameterTable::SegmentRef ref : table.segments()) {
      tensors[table.segment(ref).name] = at::randn(table.segment(ref).shape);
    }
    return tensors;
  }

  io::ModelFolder Write(const std::map<std::string, at::Tensor>& tensors) {
    EXPECT_OK(WriteTensors(path_.string(), tensors));
    auto folder = io::ModelFolder::Open(path_.string());
    EXPECT_OK(folder);
    return *std::move(folder);
  }

  std::filesystem::path path_;
};

TEST_F(LoadParametersTest, ConvertsEveryElementType) {
  const ParameterTable table(TinySpec());
  std::map<std::string, at::Tensor> tensors = Tensors(table);
  tensors["lm_head.weight"] = tensors["lm_head.weight"].to(at::kHalf);
  tensors["model.norm.weight"] = tensors["model.norm.weight"].to(at::kBFloat16);
  const io::ModelFolder folder = Write(tensors);
  for (at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    Arena arena(table, dtype);
    ASSERT_OK(LoadParameters(folder, arena));
    for (size_t i = 0; i < table.segments().size(); ++i) {
      const std::string& name = table.segment(table.segments()[i]).name;
      EXPECT_TRUE(at::equal(arena.SegmentTensor(i), tensors[name].to(dtype))) << name;
    }
  }
}

TEST_F(LoadParametersTest, GivesPartsOfATensor) {
  const io::ModelFolder folder = Write({{"x", at::arange(200000, at::kFloat)}});
  ASSERT_OK_AND_ASSIGN(const io::TensorView tensor, folder.Find("x"));
  at::Tensor part = at::empty({150000}, at::kBFloat16);
  ASSERT_OK(CopyElements(tensor, 7, 150000, at::kBFloat16, part.mutable_data_ptr()));
  EXPECT_TRUE(at::equal(part, at::arange(7, 150007, at::kFloat).to(at::kBFloat16)));
  EXPECT_THAT(CopyElements(tensor, 199999, 2, at::kFloat, part.mutable_data_ptr()),
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("200000")));
}

TEST_F(LoadParametersTest, ListsWhatIsMissingUnexpectedAndMisshapenBeforeReading) {
  const ParameterTable table(TinySpec());
  std::map<std::string, at::Tensor> tensors = Tensors(table);
  tensors.erase("model.layers.0.self_attn.k_proj.weight");
  tensors["model.layers.0.mlp.up_proj.weight"] = at::zeros({6, 5});
  tensors["model.layers.7.mlp.up_proj.weight"] = at::zeros({1});
  const io::ModelFolder folder = Write(tensors);
  int calls = 0;
  const absl::Status status =
      LoadParameters(folder, table, [&](ParameterTable::SegmentRef, const StoredSource&) {
        ++calls;
        return absl::OkStatus();
      });
  EXPECT_THAT(
      status,
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("1 missing: model.layers.0.self_attn.k_proj.weight"),
                     HasSubstr("1 unexpected: model.layers.7.mlp.up_proj.weight"),
                     HasSubstr("model.layers.0.mlp.up_proj.weight: shape [6, 5] where [6, 4]"))));
  EXPECT_EQ(calls, 0);
  ASSERT_OK_AND_ASSIGN(const StoredLayout layout, StoredLayout::Create(table, &folder));
  const ParameterMismatch mismatch = CompareParameters(layout, folder);
  EXPECT_THAT(mismatch.missing, ElementsAre("model.layers.0.self_attn.k_proj.weight"));
}

TEST_F(LoadParametersTest, OldRotaryBuffersAreIgnored) {
  const ParameterTable table(TinySpec());
  std::map<std::string, at::Tensor> tensors = Tensors(table);
  tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::zeros({1});
  Arena arena(table, at::kFloat);
  EXPECT_OK(LoadParameters(Write(tensors), arena));
}

TEST_F(LoadParametersTest, TiedHeadMayBeStoredUnderEitherNameOrBoth) {
  const ParameterTable table(TinySpec(/*tied=*/true));
  std::map<std::string, at::Tensor> tensors = Tensors(table);
  const at::Tensor embedding = tensors["model.embed_tokens.weight"];
  Arena arena(table, at::kFloat);

  tensors["lm_head.weight"] = embedding;
  EXPECT_OK(LoadParameters(Write(tensors), arena));

  tensors.erase("model.embed_tokens.weight");
  ASSERT_OK(LoadParameters(Write(tensors), arena));
  EXPECT_TRUE(at::equal(arena.Get(table.lm_head()), embedding));

  tensors["model.embed_tokens.weight"] = embedding + 1;
  EXPECT_THAT(LoadParameters(Write(tensors), arena),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("tie_word_embeddings")));
}

TEST_F(LoadParametersTest, OtherElementTypesAreRefusedByName) {
  const ParameterTable table(TinySpec());
  std::map<std::string, at::Tensor> tensors = Tensors(table);
  tensors["model.norm.weight"] = at::ones({4}, at::kLong);
  Arena arena(table, at::kFloat);
  EXPECT_THAT(LoadParameters(Write(tensors), arena),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr("model.norm.weight"), HasSubstr("I64"))));
}

TEST(Arena, ParametersLieAtAlignedAddressesAndSegmentsAreTheirRows) {
  const ParameterTable table(TinySpec());
  const Arena arena(table, at::kBFloat16);
  for (size_t i = 0; i < table.parameters().size(); ++i) {
    const at::Tensor& parameter = arena.Get(static_cast<int>(i));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(parameter.const_data_ptr()) % 64, 0);
    EXPECT_EQ(parameter.sizes(), at::IntArrayRef(table.parameters()[i].shape));
  }
  size_t total = 0;
  for (size_t i = 0; i < table.segments().size(); ++i) {
    const absl::Span<std::byte> bytes = arena.SegmentBytes(i);
    EXPECT_EQ(bytes.data(), arena.SegmentTensor(i).data_ptr());
    EXPECT_EQ(bytes.size(), arena.SegmentTensor(i).nbytes());
    total += bytes.size();
  }
  EXPECT_EQ(total, static_cast<size_t>(2 * table.num_parameters()));
}

TEST(RandomInit, APartIsDrawnAsInTheWhole) {
  const ModelSpec spec = TinySpec();
  const ParameterTable table(spec);
  const ParameterTable::SegmentRef ref = table.segments()[0];
  const int64_t numel = table.segment(ref).numel;
  at::Tensor whole = at::empty({numel});
  RandomInit(spec, table, ref, 5, 0, numel, at::kFloat, whole.mutable_data_ptr());
  for (int64_t first : {0, 1, 3, 4, 17}) {
    at::Tensor part = at::empty({numel - first - 1});
    RandomInit(spec, table, ref, 5, first, part.numel(), at::kFloat, part.mutable_data_ptr());
    EXPECT_TRUE(at::equal(part, whole.narrow(0, first, part.numel()))) << first;
  }
}

TEST(RandomInit, MatricesAreNormalNormsOnesAndSegmentsDiffer) {
  ModelSpec spec = TinySpec();
  spec.hidden_size = 64;
  spec.initializer_range = 0.5;
  for (LayerSpec& layer : spec.layers) {
    layer.feed_forward.intermediate_size = 500;
    layer.attention.qkv_bias = true;
  }
  const ParameterTable table(spec);
  Arena arena(table, at::kFloat);
  RandomInit(spec, 1, arena);
  const LayerParameters& layer = table.layer(0);
  EXPECT_TRUE(at::equal(arena.Get(layer.attention_norm.weight), at::ones({64})));
  EXPECT_TRUE(at::equal(arena.Get(layer.attention.qkv_bias), at::zeros({8})));
  const at::Tensor gate = arena.Get(layer.feed_forward.gate_up_weight).narrow(0, 0, 500).clone();
  const at::Tensor up = arena.Get(layer.feed_forward.gate_up_weight).narrow(0, 500, 500).clone();
  EXPECT_NEAR(gate.mean().item<double>(), 0.0, 0.02);
  EXPECT_NEAR(gate.std().item<double>(), 0.5, 0.02);
  // A normal's fourth moment is three times its variance squared.
  EXPECT_NEAR(gate.pow(4).mean().item<double>() / 0.0625, 3.0, 0.2);
  EXPECT_LT((gate * up).mean().abs().item<double>(), 0.01);
  RandomInit(spec, 2, arena);
  EXPECT_FALSE(at::equal(gate, arena.Get(layer.feed_forward.gate_up_weight).narrow(0, 0, 500)));
}

}  // namespace
}  // namespace tandem::model
