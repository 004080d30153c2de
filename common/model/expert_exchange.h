// Expert parallelism (2006.16668): the ranks of a group hold different experts and have tokens of
// their own. Rows travel to the ranks of their experts and back:
//
//   const ExpertRows rows = GroupByExpert(experts, num_experts);
//   const ExpertExchange exchange = PlanExchange(rows, group);           // counts travel
//   const at::Tensor own = ToExperts(DispatchRows(x, rows), exchange);   // rows travel
//   const at::Tensor results = GroupedLinear(own, exchange.own, weights, biases, packed);
//   const at::Tensor back = FromExperts(results, exchange);              // in the order of `rows`
//   const at::Tensor out = CombineRows(back, token_weights, rows);
//
// A token's results come back to where they are without the group, so their weighted sum has the
// same order and the same bits.
//
// Every rank of the group calls each function, also with no rows, in the same order, forward and
// backward. A failed message throws CollectiveError; deadlines are the group's.
#ifndef TANDEM_COMMON_MODEL_EXPERT_EXCHANGE_H_
#define TANDEM_COMMON_MODEL_EXPERT_EXCHANGE_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "common/comm/process_group.h"
#include "common/model/expert_rows.h"

namespace tandem::model {

struct ExpertExchange {
  comm::ProcessGroup* group = nullptr;
  std::vector<int64_t> sent;      // rows to each rank, consecutive: experts are split in order
  std::vector<int64_t> received;  // rows from each rank
  // int64 [num_received]. Received rows come by rank, then by expert; row i by expert is received
  // row by_expert[i], and received row i is row by_rank[i] by expert.
  at::Tensor by_expert;
  at::Tensor by_rank;
  // The received rows by own expert, then by rank: `first` alone.
  ExpertRows own;
};

// Exchanges counts. `rows`: of this rank's tokens, over all experts; their number is a multiple of
// the group's size. The group outlives the result and graphs made with it. Waits for the peers.
ExpertExchange PlanExchange(const ExpertRows& rows, comm::ProcessGroup& group);

// Returns the rows of this rank's experts, [num_received, size]. x: [num_tokens * top_k, size], by
// expert. Differentiable.
at::Tensor ToExperts(const at::Tensor& x, const ExpertExchange& exchange);

// The reverse.
at::Tensor FromExperts(const at::Tensor& results, const ExpertExchange& exchange);

}  // namespace tandem::model

#endif  // TANDEM_COMMON_MODEL_EXPERT_EXCHANGE_H_
