// StoredRule: where a parameter's tensor lies in a model's folder, if not under its own name and as
// it is. Families name and fuse their tensors differently; everywhere else a tensor has one name,
// that of Llama's ("model.layers.0.self_attn.q_proj.weight").
#ifndef TANDEM_COMMON_MODEL_STORED_RULE_H_
#define TANDEM_COMMON_MODEL_STORED_RULE_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::model {

// How the tensors that one tensor of the folder holds are laid out along its dim 0.
enum class StoredFusion {
  kNone,     // it is one tensor
  kStacked,  // one after another: Phi-3's qkv_proj, gate_up_proj
  kPerHead,  // q, k and v of the first head, then of the next: GPT-NeoX, BLOOM
  // Queries of the first KV head, its key, its value, then the next's: Falcon. With linear attention
  // what belongs to the first key head, then to the next: Qwen3-Next.
  kPerGroup,
  kAlternating,  // a row of each in turn: gate and up of gpt-oss
};

struct StoredRule {
  // Both with "{layer}" and "{expert}" for numbers. If only the name has "{expert}", the tensor holds
  // all experts along a first dimension of its own. "{head}" in the tensor alone: a parameter
  // [heads, head_dim] has a tensor [head_dim] for each head.
  std::string name;    // "model.layers.{layer}.self_attn.q_proj.weight"
  std::string tensor;  // "transformer.h.{layer}.attn.c_attn.weight"
  StoredFusion fusion = StoredFusion::kNone;
  // The names that share the tensor, in order, this one among them; empty for kNone.
  std::vector<std::string> parts;
  bool transposed = false;   // the folder has [in, out]; a bias is as it is
  bool either_way = false;   // or the other way, if its tensor has the shape of that
  int skip_rows = 0;         // rows of the tensor before the parameter's, which belong to none
  bool leading_one = false;  // the tensor has a first dimension of 1 before the parameter's
  // Sizes of the tensor after its first dimension, whose product is the number of the parameter's
  // columns: a convolution over patches, which is a matrix here. Empty: as the parameter.
  std::vector<int64_t> columns;

  friend bool operator==(const StoredRule&, const StoredRule&) = default;
};

// A scalar of the folder that is the same in every checkpoint of the family: an export writes it,
// and a folder with another value is refused.
struct StoredConstant {
  std::string tensor;  // with "{layer}": one for each layer
  double value = 0.0;

  friend bool operator==(const StoredConstant&, const StoredConstant&) = default;
};

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_STORED_RULE_H_
