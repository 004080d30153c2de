#include "services/rollout/runner/gather_logits.h"

#include <ATen/ops/empty.h>

#include <memory>
#include <utility>
#include <vector>

#include "common/model/tensor_collectives.h"
#include "common/model/tensor_parallel.h"

namespace tandem::rollout {
namespace {

std::unique_ptr<comm::Work> Started(comm::ProcessGroup::WorkOr work) {
  if (!work.ok()) throw model::CollectiveError(std::move(work).status());
  return *std::move(work);
}

void Await(comm::Work& work) {
  if (absl::Status status = work.Wait(); !status.ok()) {
    throw model::CollectiveError(std::move(status));
  }
}

}  // namespace

at::Tensor GatherLogits(const model::Transformer& model, const at::Tensor& part) {
  comm::ProcessGroup* const group = model.tensor_group();
  if (!model::IsSplit(group)) return part.contiguous();
  if (group->rank() > 0) {
    Await(*Started(group->Send(part.contiguous(), 0, "logits")));
    return at::Tensor();
  }
  at::Tensor logits = at::empty({part.size(0), model.spec().vocab_size}, part.options());
  std::vector<at::Tensor> parts(group->size());
  std::vector<std::unique_ptr<comm::Work>> receiving(group->size());
  std::vector<model::Range> rows(group->size());
  for (int rank = 1; rank < group->size(); ++rank) {
    rows[rank] = model::PartOf(model.spec().vocab_size, {rank, group->size()});
    parts[rank] = at::empty({part.size(0), rows[rank].size()}, part.options());
    receiving[rank] = Started(group->Receive(parts[rank], rank, "logits"));
  }
  logits.narrow(1, 0, part.size(1)).copy_(part);
  for (int rank = 1; rank < group->size(); ++rank) {
    Await(*receiving[rank]);
    logits.narrow(1, rows[rank].begin, rows[rank].size()).copy_(parts[rank]);
  }
  return logits;
}

}  // namespace tandem::rollout
