// tandem-inspect: runs a model on one sequence of tokens; writes the entropy and log-prob of each
// token and the attention of every layer and head. The viewer runs it on the sample that it shows.
//
//   tandem-inspect --model DIR --input ids.json --output found.json --attention weights.bin
//
// ids.json is a list of token ids. found.json: {"entropies", "logprobs"} (of the distribution after
// each token but the last, and of the token that follows), "num_layers", "num_heads". weights.bin:
// bytes [num_layers][num_heads][T][T], 255 for a weight of 1; row i reads columns 0 to i.
#include <ATen/ATen.h>

#include <CLI/CLI.hpp>
#include <cstdint>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/io/atomic_file.h"
#include "common/io/json_text.h"
#include "common/io/model_folder.h"
#include "common/io/parse_json.h"
#include "common/io/read_file.h"
#include "common/model/arena.h"
#include "common/model/eager_ops.h"
#include "common/model/families/family_table.h"
#include "common/model/load_parameters.h"
#include "common/model/model_spec.h"
#include "common/model/packed_attention.h"
#include "common/model/transformer.h"
#include "common/status/status_macros.h"
#include "common/text/printable.h"
#include "common/version/version.h"

namespace tandem::view {
namespace {

// Limit of the attention weights, one byte each.
constexpr int64_t kMaxAttentionBytes = int64_t{512} << 20;

struct Options {
  std::string model;
  std::string family_file;
  std::string input;
  std::string output;
  std::string attention;
};

// Computes attention like the trainer and keeps the weights of every layer.
class WatchedAttention : public model::Attention {
 public:
  WatchedAttention(at::Tensor cu_seqlens, std::string& weights)
      : attention_(std::move(cu_seqlens)), weights_(weights) {}

  at::Tensor Forward(int64_t layer, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const model::AttentionParams& params) override {
    const at::Tensor bytes = (model::eager::AttentionProbabilities(q, k, params) * 255)
                                 .round()
                                 .to(at::kByte)
                                 .contiguous();
    weights_.append(reinterpret_cast<const char*>(bytes.const_data_ptr<uint8_t>()),
                    static_cast<size_t>(bytes.numel()));
    return attention_.Forward(layer, q, k, v, params);
  }

 private:
  model::PackedAttention attention_;
  std::string& weights_;
};

absl::StatusOr<std::vector<int64_t>> ReadIds(const std::string& path, int64_t vocab_size) {
  ASSIGN_OR_RETURN(const std::string text, io::ReadFile(path));
  const auto json = io::ParseJson<nlohmann::json>(text).value_or(nullptr);
  std::vector<int64_t> ids;
  if (json.is_array()) {
    for (const auto& id : json) {
      if (!id.is_number_integer()) break;
      ids.push_back(id.get<int64_t>());
      if (ids.back() < 0 || ids.back() >= vocab_size) {
        return absl::InvalidArgumentError(absl::StrCat(
            path, ": token id ", ids.back(), " is not in the vocabulary of ", vocab_size));
      }
    }
  }
  if (ids.size() < 2 || ids.size() != json.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": expected a list of at least two token ids"));
  }
  return ids;
}

absl::Status Run(const Options& options) {
  const at::NoGradGuard no_grad;
  RETURN_IF_ERROR(model::AddFamilyFile(options.family_file));
  ASSIGN_OR_RETURN(const io::ModelFolder folder, io::ModelFolder::Open(options.model));
  ASSIGN_OR_RETURN(const io::ModelConfig config, io::ReadModelConfig(options.model));
  ASSIGN_OR_RETURN(model::ModelSpec spec, model::ParseModelSpec(config.json, config.path));
  const model::Transformer transformer(std::move(spec));
  ASSIGN_OR_RETURN(std::vector<int64_t> ids, ReadIds(options.input, transformer.spec().vocab_size));
  const auto length = static_cast<int64_t>(ids.size());
  const int64_t num_heads = transformer.spec().layers.front().attention.num_heads;
  for (const model::LayerSpec& layer : transformer.spec().layers) {
    if (layer.attention.num_heads == num_heads) continue;
    return absl::UnimplementedError(absl::StrCat(
        "the attention of a model is shown whose layers all have as many heads; found layers with ",
        num_heads, " and ", layer.attention.num_heads));
  }
  const int64_t bytes = transformer.spec().num_layers() * num_heads * length * length;
  if (bytes > kMaxAttentionBytes) {
    return absl::ResourceExhaustedError(absl::StrCat("the attention of ", length, " tokens takes ",
                                                     bytes >> 20, " MiB; at most ",
                                                     kMaxAttentionBytes >> 20, " are shown"));
  }
  model::Arena arena(transformer.table(), at::kFloat);
  RETURN_IF_ERROR(model::LoadParameters(folder, arena));

  const at::Tensor tokens = at::tensor(ids, at::kLong);
  std::string weights;
  weights.reserve(static_cast<size_t>(bytes));
  WatchedAttention attention(at::tensor({int64_t{0}, length}, at::kLong), weights);
  const at::Tensor positions = at::arange(length, at::kLong);
  const model::Rotary rotary =
      transformer.MakeRotary(positions, at::full({length}, length, at::kLong));
  const at::Tensor x = transformer.Blocks(arena, tokens, positions, rotary, attention);
  const at::Tensor hidden = transformer.FinalNorm(arena, x).narrow(0, 0, length - 1);
  const model::LogProbs out = transformer.HeadLogProbs(
      arena, hidden, tokens.narrow(0, 1, length - 1), at::ones({length - 1}, at::kFloat));
  const auto list = [](const at::Tensor& values) {
    const at::Tensor flat = values.to(at::kFloat).contiguous();
    const float* const data = flat.const_data_ptr<float>();
    return std::vector<float>(data, data + flat.numel());
  };
  const nlohmann::json found = {{"entropies", list(out.entropy)},
                                {"logprobs", list(out.logprobs)},
                                {"num_layers", transformer.spec().num_layers()},
                                {"num_heads", num_heads}};
  RETURN_IF_ERROR(io::WriteFileAtomically(options.attention, weights));
  return io::WriteFileAtomically(options.output, io::JsonText(found));
}

}  // namespace
}  // namespace tandem::view

int main(int argc, char** argv) {
  CLI::App app("Runs a model on one sequence of tokens.", "tandem-inspect");
  tandem::view::Options options;
  app.set_version_flag("--version",
                       absl::StrCat("tandem-inspect ", tandem::version::BuildVersion()));
  app.add_option("--model", options.model, "Hugging Face folder")->required();
  app.add_option("--family-file", options.family_file, "model.family_file of the run");
  app.add_option("--input", options.input, "JSON list of token ids")->required();
  app.add_option("--output", options.output, "JSON: entropies, log-probs, sizes")->required();
  app.add_option("--attention", options.attention, "Attention weights, one byte each")->required();
  CLI11_PARSE(app, argc, argv);
  absl::Status status;
  try {
    status = tandem::view::Run(options);
  } catch (const std::exception& error) {
    status = absl::InternalError(error.what());
  }
  if (status.ok()) return 0;
  std::cerr << tandem::text::Printable(status.message()) << "\n";
  return 1;
}
