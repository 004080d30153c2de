#include "services/trainer/checkpoint/snapshot_writer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/shard_writer.h"
#include "common/host/memory_limit.h"
#include "common/status/exceptions.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"

namespace tandem::trainer {
namespace {

// A part with elements in host memory: a copy, or the shard itself.
struct HostPart {
  std::string model;
  std::string kind;
  std::vector<checkpoint::Run> runs;
  at::Tensor shard;  // on the CPU, if it is written in place; undefined with a copy
  std::unique_ptr<float[]> copy;
};

std::unique_ptr<float[]> CopyOf(const at::Tensor& shard) {
  const at::NoGradGuard no_grad;
  // Allocated outside LibTorch's allocator: the copy does not count as memory of training.
  std::unique_ptr<float[]> copy(new float[static_cast<size_t>(shard.numel())]);
  at::from_blob(copy.get(), shard.sizes(), at::kFloat).copy_(shard);
  return copy;
}

HostPart ToHost(const std::string& model, ShardPart part, bool copy) {
  HostPart out{model, std::move(part.kind), std::move(part.runs)};
  if (!copy && part.tensor.is_cpu()) {
    out.shard = part.tensor;
  } else {
    out.copy = CopyOf(part.tensor);
  }
  return out;
}

absl::Status Write(const SnapshotOptions& options, std::vector<HostPart>& parts) {
  ASSIGN_OR_RETURN(checkpoint::ShardWriter writer,
                   checkpoint::ShardWriter::Create(options.folder, options.name));
  for (HostPart& part : parts) {
    // A frozen shard in bfloat16 is widened.
    if (part.shard.defined() && part.shard.scalar_type() != at::kFloat) {
      part.copy = CopyOf(part.shard);
    }
    const float* const elements =
        part.copy != nullptr ? part.copy.get() : part.shard.const_data_ptr<float>();
    for (const checkpoint::Run& run : part.runs) {
      if (!options.writes_whole_tensors && run.box == checkpoint::WholeBox(run.shape)) continue;
      RETURN_IF_ERROR(
          writer.Add(part.model, part.kind, run,
                     absl::MakeConstSpan(elements + run.offset, static_cast<size_t>(run.count))));
    }
    part.copy.reset();
    if (part.shard.defined()) Evict(part.shard);
  }
  return writer.Commit();
}

}  // namespace

SnapshotWriter::~SnapshotWriter() {
  if (thread_.joinable()) thread_.join();
}

absl::Status SnapshotWriter::Start(const SnapshotOptions& options,
                                   const std::vector<CheckpointedModel>& models) {
  if (started_) return absl::InternalError("a snapshot is still being written");
  auto parts = std::make_shared<std::vector<HostPart>>();
  try {
    for (const CheckpointedModel& model : models) {
      for (ShardPart& part : ShardParts(model)) {
        parts->push_back(ToHost(model.name, std::move(part), options.in_background));
      }
    }
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "not enough memory for the copy that a background checkpoint is written from: ",
        host::DescribeMemoryLimits(), "; ", host::kLowerMemory));
  }
  started_ = true;
  done_ = false;
  const auto write = [this, options, parts] {
    const auto begin = std::chrono::steady_clock::now();
    status_ = Catch([&] { return Write(options, *parts); });
    parts->clear();
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    done_ = true;
  };
  if (options.in_background) {
    thread_ = std::thread(write);
  } else {
    write();
  }
  return absl::OkStatus();
}

absl::StatusOr<double> SnapshotWriter::Wait() {
  if (thread_.joinable()) thread_.join();
  started_ = false;
  RETURN_IF_ERROR(std::exchange(status_, absl::OkStatus()));
  return seconds_;
}

}  // namespace tandem::trainer
