#include "tools/tandem/gpu_check/random_model.h"

#include <algorithm>
#include <bit>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/io/model_folder_writer.h"
#include "common/status/status_macros.h"

namespace tandem::gpu_check {
namespace {

constexpr uint16_t kOne = 0x3f80;  // 1.0 in bfloat16
// A prime, so that the rows of a matrix differ.
constexpr size_t kPool = 2'097'143;

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
};

std::vector<Tensor> TensorsOf(const ModelShape& shape) {
  const int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  std::vector<Tensor> tensors = {{"model.embed_tokens.weight", {shape.vocab, shape.hidden}}};
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string prefix = absl::StrCat("model.layers.", layer, ".");
    const auto add = [&](const char* name, std::vector<int64_t> sizes) {
      tensors.push_back({absl::StrCat(prefix, name, ".weight"), std::move(sizes)});
    };
    add("input_layernorm", {shape.hidden});
    add("self_attn.q_proj", {q, shape.hidden});
    add("self_attn.k_proj", {kv, shape.hidden});
    add("self_attn.v_proj", {kv, shape.hidden});
    add("self_attn.o_proj", {shape.hidden, q});
    add("post_attention_layernorm", {shape.hidden});
    add("mlp.gate_proj", {shape.intermediate, shape.hidden});
    add("mlp.up_proj", {shape.intermediate, shape.hidden});
    add("mlp.down_proj", {shape.hidden, shape.intermediate});
  }
  tensors.push_back({"model.norm.weight", {shape.hidden}});
  tensors.push_back({"lm_head.weight", {shape.vocab, shape.hidden}});
  return tensors;
}

int64_t ElementsOf(const Tensor& tensor) {
  int64_t elements = 1;
  for (const int64_t size : tensor.shape) elements *= size;
  return elements;
}

// Random values in bfloat16, by truncation.
std::vector<uint16_t> DrawPool(double deviation) {
  std::mt19937 generator(1);
  std::normal_distribution<float> normal(0.0f, static_cast<float>(deviation));
  std::vector<uint16_t> pool(kPool);
  for (uint16_t& value : pool) {
    value = static_cast<uint16_t>(std::bit_cast<uint32_t>(normal(generator)) >> 16);
  }
  return pool;
}

absl::Status Append(io::ModelFolderWriter& writer, const Tensor& tensor,
                    const std::vector<uint16_t>& values, size_t& next) {
  for (int64_t left = ElementsOf(tensor); left > 0;) {
    const size_t count = std::min(static_cast<size_t>(left), values.size() - next);
    RETURN_IF_ERROR(writer.Append(
        tensor.name, absl::MakeConstSpan(reinterpret_cast<const std::byte*>(&values[next]),
                                         count * sizeof(uint16_t))));
    next = (next + count) % values.size();
    left -= static_cast<int64_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ModelShape::num_parameters() const {
  int64_t all = 0;
  for (const Tensor& tensor : TensorsOf(*this)) all += ElementsOf(tensor);
  return all;
}

ModelShape TinyShape() {
  return {.layers = 3,
          .hidden = 256,
          .intermediate = 512,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 64,
          .vocab = 1000,
          .positions = 2048,
          .deviation = 0.08};
}

ModelShape HalfBillionShape() {
  return {.layers = 16,
          .hidden = 1536,
          .intermediate = 4096,
          .heads = 12,
          .kv_heads = 4,
          .head_dim = 128,
          .vocab = 32000,
          .positions = 8192};
}

nlohmann::json ConfigOf(const ModelShape& shape) {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", shape.hidden},
          {"intermediate_size", shape.intermediate},
          {"num_hidden_layers", shape.layers},
          {"num_attention_heads", shape.heads},
          {"num_key_value_heads", shape.kv_heads},
          {"head_dim", shape.head_dim},
          {"vocab_size", shape.vocab},
          {"max_position_embeddings", shape.positions},
          {"rms_norm_eps", 1e-6},
          {"rope_theta", 10000.0},
          {"hidden_act", "silu"},
          {"tie_word_embeddings", false},
          {"initializer_range", shape.deviation},
          {"eos_token_id", 0},
          {"torch_dtype", "bfloat16"}};
}

absl::Status WriteRandomModel(const ModelShape& shape, const std::string& path) {
  const std::vector<Tensor> tensors = TensorsOf(shape);
  std::vector<io::TensorDeclaration> declarations;
  for (const Tensor& tensor : tensors) {
    declarations.push_back({tensor.name, io::DType::kBF16, tensor.shape});
  }
  io::ModelFolderWriter::Options options;
  options.config = ConfigOf(shape);
  ASSIGN_OR_RETURN(io::ModelFolderWriter writer,
                   io::ModelFolderWriter::Create(path, std::move(declarations), options));
  const std::vector<uint16_t> pool = DrawPool(shape.deviation);
  const std::vector<uint16_t> ones(static_cast<size_t>(shape.hidden), kOne);
  size_t next = 0, next_one = 0;
  for (const Tensor& tensor : tensors) {
    const bool is_norm = tensor.shape.size() == 1;
    RETURN_IF_ERROR(is_norm ? Append(writer, tensor, ones, next_one)
                            : Append(writer, tensor, pool, next));
  }
  return writer.Commit();
}

}  // namespace tandem::gpu_check
