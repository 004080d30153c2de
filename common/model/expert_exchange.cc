#include "common/model/expert_exchange.h"

#include <ATen/ops/index_select.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <numeric>
#include <utility>

#include "common/model/cpu_dispatch.h"
#include "common/model/step_memory.h"
#include "common/model/tensor_collectives.h"

namespace tandem::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr char kThere[] = "rows to experts";
constexpr char kBack[] = "rows from experts";

std::vector<int64_t> StartsOf(const std::vector<int64_t>& counts) {
  std::vector<int64_t> starts(counts.size() + 1, 0);
  std::partial_sum(counts.begin(), counts.end(), starts.begin() + 1);
  return starts;
}

// Sends consecutive rows of x [sum of `sent`, size] to each rank. Returns those from each rank,
// [sum of `received`, size].
//
// Peers in ascending order, and of two ranks the lower one sends first: all ranks then issue their
// messages in one order of pairs, which a device that runs them one after another needs.
at::Tensor Moved(const at::Tensor& x, const std::vector<int64_t>& sent,
                 const std::vector<int64_t>& received, comm::ProcessGroup& group, const char* tag) {
  const std::vector<int64_t> from = StartsOf(sent);
  const std::vector<int64_t> to = StartsOf(received);
  const at::Tensor in = x.contiguous();
  at::Tensor out = EmptyTensor({to.back(), x.size(1)}, x.options().requires_grad(false));
  std::vector<std::unique_ptr<comm::Work>> works;
  const auto send = [&](int peer) {
    if (sent[peer] == 0) return;
    works.push_back(Issued(group.Send(in.narrow(0, from[peer], sent[peer]), peer, tag)));
  };
  const auto receive = [&](int peer) {
    if (received[peer] == 0) return;
    works.push_back(Issued(group.Receive(out.narrow(0, to[peer], received[peer]), peer, tag)));
  };
  for (int peer = 0; peer < group.size(); ++peer) {
    if (peer == group.rank()) {
      out.narrow(0, to[peer], received[peer]).copy_(in.narrow(0, from[peer], sent[peer]));
    } else if (peer < group.rank()) {
      receive(peer);
      send(peer);
    } else {
      send(peer);
      receive(peer);
    }
  }
  for (const std::unique_ptr<comm::Work>& work : works) Await(*work);
  return out;
}

at::Tensor SentThere(const at::Tensor& x, const ExpertExchange& exchange, const char* tag) {
  const at::Tensor received = Moved(x, exchange.sent, exchange.received, *exchange.group, tag);
  return at::index_select(received, 0, exchange.by_expert);
}

at::Tensor SentBack(const at::Tensor& results, const ExpertExchange& exchange, const char* tag) {
  const at::Tensor by_rank = at::index_select(results, 0, exchange.by_rank);
  return Moved(by_rank, exchange.received, exchange.sent, *exchange.group, tag);
}

// One direction; its backward pass is the other one.
struct RowExchangeFunction : torch::autograd::Function<RowExchangeFunction> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const ExpertExchange& exchange, bool there) {
    ctx->saved_data["group"] = reinterpret_cast<int64_t>(exchange.group);
    ctx->saved_data["sent"] = exchange.sent;
    ctx->saved_data["received"] = exchange.received;
    ctx->saved_data["there"] = there;
    ctx->save_for_backward({exchange.by_expert, exchange.by_rank});
    return there ? SentThere(x, exchange, kThere) : SentBack(x, exchange, kBack);
  }

  static variable_list backward(AutogradContext* ctx, const variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    ExpertExchange exchange;
    exchange.group = reinterpret_cast<comm::ProcessGroup*>(ctx->saved_data["group"].toInt());
    exchange.sent = ctx->saved_data["sent"].toIntVector();
    exchange.received = ctx->saved_data["received"].toIntVector();
    exchange.by_expert = saved[0];
    exchange.by_rank = saved[1];
    const bool there = ctx->saved_data["there"].toBool();
    return {there ? SentBack(grads[0], exchange, "gradients from experts")
                  : SentThere(grads[0], exchange, "gradients to experts"),
            at::Tensor(), at::Tensor()};
  }
};

at::Tensor RowsExchanged(const at::Tensor& x, const ExpertExchange& exchange, bool there) {
  if (NeedsGraph({x})) return RowExchangeFunction::apply(x, exchange, there);
  return there ? SentThere(x, exchange, kThere) : SentBack(x, exchange, kBack);
}

// Rows of each rank's tokens, of which there are counts[r, e] for own expert e, in both orders.
void OrderRows(const at::Tensor& counts, ExpertExchange& exchange) {
  const int64_t ranks = counts.size(0);
  const int64_t experts = counts.size(1);
  const int64_t* const count = counts.const_data_ptr<int64_t>();
  exchange.own.first = EmptyTensor({experts + 1}, at::kLong);
  int64_t* const first = exchange.own.first.mutable_data_ptr<int64_t>();
  first[0] = 0;
  exchange.received.assign(ranks, 0);
  for (int64_t e = 0; e < experts; ++e) {
    first[e + 1] = first[e];
    for (int64_t r = 0; r < ranks; ++r) {
      first[e + 1] += count[r * experts + e];
      exchange.received[r] += count[r * experts + e];
    }
  }
  const int64_t total = first[experts];
  exchange.by_expert = EmptyTensor({total}, at::kLong);
  exchange.by_rank = EmptyTensor({total}, at::kLong);
  int64_t* const by_expert = exchange.by_expert.mutable_data_ptr<int64_t>();
  int64_t* const by_rank = exchange.by_rank.mutable_data_ptr<int64_t>();
  std::vector<int64_t> next(first, first + experts);
  int64_t row = 0;
  for (int64_t r = 0; r < ranks; ++r) {
    for (int64_t e = 0; e < experts; ++e) {
      for (int64_t i = 0; i < count[r * experts + e]; ++i, ++row) {
        by_rank[row] = next[e];
        by_expert[next[e]++] = row;
      }
    }
  }
}

}  // namespace

ExpertExchange PlanExchange(const ExpertRows& rows, comm::ProcessGroup& group) {
  const int64_t ranks = group.size();
  const int64_t experts = (rows.first.numel() - 1) / ranks;  // of each rank
  const at::Tensor on_host = rows.first.cpu();
  const int64_t* const first = on_host.const_data_ptr<int64_t>();
  ExpertExchange exchange;
  exchange.group = &group;
  at::Tensor counts = EmptyTensor({ranks, experts}, at::kLong);
  int64_t* const count = counts.mutable_data_ptr<int64_t>();
  for (int64_t e = 0; e < ranks * experts; ++e) count[e] = first[e + 1] - first[e];
  for (int64_t r = 0; r < ranks; ++r) {
    exchange.sent.push_back(first[(r + 1) * experts] - first[r * experts]);
  }
  const at::Device device = rows.tokens.device();
  OrderRows(ExchangeSlices(counts.to(device), &group, "rows of experts").cpu(), exchange);
  exchange.by_expert = exchange.by_expert.to(device);
  exchange.by_rank = exchange.by_rank.to(device);
  return exchange;
}

at::Tensor ToExperts(const at::Tensor& x, const ExpertExchange& exchange) {
  return RowsExchanged(x, exchange, /*there=*/true);
}

at::Tensor FromExperts(const at::Tensor& results, const ExpertExchange& exchange) {
  return RowsExchanged(results, exchange, /*there=*/false);
}

}  // namespace tandem::model
