#include "services/trainer/checkpoint/load_shard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "common/rpc/status_conversion.h"
#include "common/status/status_macros.h"
#include "services/trainer/fsdp/offload_file.h"
#include "tandem/common/v1/error.pb.h"

namespace tandem::trainer {
namespace {

constexpr int64_t kPieceElements = int64_t{1} << 20;

// Tensors that `model` trains and of which the checkpoint has no moments. Training them from zero
// moments at the steps of the others would begin with updates several times too large, and their
// stored values may have been rounded to the compute dtype.
std::vector<std::string> FrozenWhenSaved(const checkpoint::ModelEntry& model,
                                         const checkpoint::ModelEntry& saved) {
  std::set<std::string> frozen;
  for (const checkpoint::LogicalTensor& tensor : saved.tensors) {
    if (!tensor.trainable) frozen.insert(tensor.name);
  }
  std::vector<std::string> out;
  for (const checkpoint::LogicalTensor& tensor : model.tensors) {
    if (tensor.trainable && frozen.contains(tensor.name)) out.push_back(tensor.name);
  }
  return out;
}

// Resuming with another optimizer would start from its zero state with the step count of the other.
absl::Status CheckOptimizer(const checkpoint::CheckpointReader& reader,
                            const checkpoint::ModelEntry& model,
                            const checkpoint::ModelEntry& saved) {
  std::map<std::string, const checkpoint::LogicalTensor*> of_saved;
  for (const checkpoint::LogicalTensor& tensor : saved.tensors) of_saved[tensor.name] = &tensor;
  for (const checkpoint::LogicalTensor& tensor : model.tensors) {
    if (!tensor.trainable) continue;
    const std::vector<std::string> expected = tensor.StateKinds(model.kinds);
    const std::vector<std::string> found = of_saved.at(tensor.name)->StateKinds(saved.kinds);
    if (expected == found) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        reader.folder(), " was written with another optimizer of the ", model.name, ": ",
        tensor.name, " has the state ", absl::StrJoin(found, ", "), ", and this run's needs ",
        absl::StrJoin(expected, ", "),
        "; keep optim.name, or export the checkpoint and start a run from that model"));
  }
  return absl::OkStatus();
}

absl::Status CheckModel(const checkpoint::CheckpointReader& reader,
                        const CheckpointedModel& model) {
  const checkpoint::ModelEntry* found = reader.manifest().FindModel(model.name);
  if (found == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(reader.folder(), " holds no ", model.name,
                                                      ": it was written with another algorithm"));
  }
  const checkpoint::ModelEntry expected = DescribeModel(model);
  const checkpoint::TensorMismatch mismatch =
      checkpoint::CompareTensors(expected.tensors, found->tensors);
  if (mismatch.empty()) {
    const std::vector<std::string> frozen = FrozenWhenSaved(expected, *found);
    if (frozen.empty()) return CheckOptimizer(reader, expected, *found);
    return absl::FailedPreconditionError(absl::StrCat(
        reader.folder(), " has no optimizer state for ", frozen.size(), " tensors of the ",
        model.name, " that were frozen when it was written, the first is ", frozen.front(),
        "; keep them in trainer.frozen_parameters, or export it and start a run from that model"));
  }
  common::v1::UnloadedParams unloaded;
  for (const std::string& name : mismatch.missing) unloaded.add_missing(name);
  for (const std::string& name : mismatch.unexpected) unloaded.add_unexpected(name);
  for (const checkpoint::TensorMismatch::Shape& shape : mismatch.misshapen) {
    common::v1::MismatchedParam& param = *unloaded.add_mismatched();
    param.set_name(shape.name);
    param.set_expected(shape.expected);
    param.set_actual(shape.found);
  }
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat(reader.folder(), " is a checkpoint of another model than the ", model.name,
                   ": of its tensors ", mismatch.ToString()));
  rpc::AttachDetail(status, unloaded);
  return status;
}

// Hands all that the rank holds to `take`, in pieces: where it belongs and its elements.
absl::Status ForEachPiece(
    checkpoint::CheckpointReader& reader, const CheckpointedModel& model,
    absl::FunctionRef<void(const ShardPart& part, int64_t offset, absl::Span<float> elements)>
        take) {
  std::vector<float> piece;
  for (const ShardPart& part : ShardParts(model)) {
    for (const checkpoint::Run& run : part.runs) {
      for (int64_t done = 0; done < run.count; done += kPieceElements) {
        checkpoint::Run some = run;
        some.begin += done;
        some.offset += done;
        some.count = std::min(kPieceElements, run.count - done);
        piece.resize(static_cast<size_t>(some.count));
        RETURN_IF_ERROR(reader.ReadRun(model.name, part.kind, some, absl::MakeSpan(piece)));
        take(part, some.offset, absl::MakeSpan(piece));
      }
    }
    Evict(part.tensor);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyShards(checkpoint::CheckpointReader& reader,
                          const std::vector<CheckpointedModel>& models) {
  for (const CheckpointedModel& model : models) {
    RETURN_IF_ERROR(CheckModel(reader, model));
  }
  for (const checkpoint::ModelEntry& entry : reader.manifest().models) {
    const bool known = std::any_of(models.begin(), models.end(), [&](const CheckpointedModel& m) {
      return m.name == entry.name;
    });
    if (!known) {
      return absl::FailedPreconditionError(
          absl::StrCat(reader.folder(), " holds a ", entry.name,
                       ", which this run does not use: it was written with another algorithm"));
    }
  }
  for (const CheckpointedModel& model : models) {
    RETURN_IF_ERROR(
        ForEachPiece(reader, model, [](const ShardPart&, int64_t, absl::Span<float>) {}));
  }
  return absl::OkStatus();
}

absl::Status ReadShards(checkpoint::CheckpointReader& reader,
                        const std::vector<CheckpointedModel>& models) {
  const at::NoGradGuard no_grad;
  for (const CheckpointedModel& model : models) {
    RETURN_IF_ERROR(ForEachPiece(
        reader, model, [](const ShardPart& part, int64_t offset, absl::Span<float> elements) {
          const auto count = static_cast<int64_t>(elements.size());
          part.tensor.narrow(0, offset, count)
              .copy_(at::from_blob(elements.data(), {count}, at::kFloat));
        }));
    model.optimizer->set_num_steps(reader.manifest().FindModel(model.name)->optimizer_steps);
    model.model->MastersChanged();
  }
  return absl::OkStatus();
}

}  // namespace tandem::trainer
