// Checkpoints of small made-up models, written by any number of ranks in any layout.
#ifndef TANDEM_TESTS_COMMON_CHECKPOINT_CHECKPOINT_FILES_H_
#define TANDEM_TESTS_COMMON_CHECKPOINT_CHECKPOINT_FILES_H_

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "common/checkpoint/layout.h"
#include "common/checkpoint/manifest.h"
#include "common/checkpoint/shard_writer.h"
#include "common/status/status_macros.h"

namespace tandem::checkpoint {

inline const std::vector<LogicalTensor>& SmallTensors() {
  static const auto* const tensors = new std::vector<LogicalTensor>{
      {"embed.weight", {7, 6}}, {"norm.weight", {5}}, {"cube.weight", {3, 2, 4}}};
  return *tensors;
}

// What element `i` of a tensor is: distinct for every tensor, kind and element.
inline float ElementOf(size_t tensor, const std::string& kind, int64_t i) {
  return static_cast<float>(1000 * (tensor + 1) + i) + (kind == "master" ? 0.0f : 0.5f);
}

// The elements of a run, in its order.
inline std::vector<float> ElementsOf(size_t tensor, const std::string& kind, const Run& run) {
  std::vector<float> out(static_cast<size_t>(run.count));
  ForEachStretch(run, [&](int64_t first, int64_t count, int64_t in_run) {
    for (int64_t i = 0; i < count; ++i) out[in_run + i] = ElementOf(tensor, kind, first + i);
  });
  return out;
}

// The runs of SmallTensors() that one of `ranks` ranks has: columns are split over `tp`, and of the
// boxes' elements each data-parallel rank has a range.
struct SmallLayout {
  int dp = 1;
  int tp = 1;

  int ranks() const { return dp * tp; }
  std::vector<std::pair<size_t, Run>> RunsOf(int rank) const {
    const int tp_rank = rank % tp, dp_rank = rank / tp;
    std::vector<std::pair<size_t, Run>> out;
    for (size_t t = 0; t < SmallTensors().size(); ++t) {
      const LogicalTensor& tensor = SmallTensors()[t];
      Box box = WholeBox(tensor.shape);
      if (box.width() >= tp) {
        const int64_t width = box.width();
        box.column_begin = width * tp_rank / tp;
        box.column_end = width * (tp_rank + 1) / tp;
      } else if (tp_rank != 0) {
        continue;  // replicated: the first writes it
      }
      const int64_t begin = box.numel() * dp_rank / dp, end = box.numel() * (dp_rank + 1) / dp;
      if (begin == end) continue;
      out.emplace_back(t, Run{tensor.name, tensor.shape, box, begin, end - begin, 0});
    }
    return out;
  }
};

inline absl::Status WriteSmallCheckpoint(const std::string& folder, const SmallLayout& layout,
                                         const std::string& source_folder = "",
                                         const std::vector<std::string>& kinds = {"master",
                                                                                  "exp_avg"}) {
  std::filesystem::create_directories(folder);
  Manifest manifest;
  manifest.step = 3;
  manifest.policy_version = 4;
  manifest.source_folder = source_folder;
  manifest.scalars = {{"kl_coef", 0.1}};
  manifest.models = {{"policy", "LlamaForCausalLM", kinds, 17, SmallTensors()}};
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    const std::string name = ShardName(rank, layout.ranks());
    ASSIGN_OR_RETURN(ShardWriter writer, ShardWriter::Create(folder, name));
    for (const std::string& kind : kinds) {
      for (const auto& [tensor, run] : layout.RunsOf(rank)) {
        RETURN_IF_ERROR(writer.Add("policy", kind, run, ElementsOf(tensor, kind, run)));
      }
    }
    RETURN_IF_ERROR(writer.Commit());
    manifest.shards.push_back(name);
    ASSIGN_OR_RETURN(manifest.files.emplace_back(), DescribeFile(folder, name + ".json"));
  }
  RETURN_IF_ERROR(WriteSideFile(folder, kDriverStateFile, "driver", manifest));
  RETURN_IF_ERROR(WriteSideFile(folder, kLastResponseFile, "", manifest));
  return WriteManifest(folder, manifest);
}

}  // namespace tandem::checkpoint

#endif  // TANDEM_TESTS_COMMON_CHECKPOINT_CHECKPOINT_FILES_H_
