// Messages whose bytes a taker puts into their place as they arrive.
#include "common/comm/message_taker.h"

#include <ATen/ATen.h>

#include <cstring>
#include <vector>

#include "common/comm/shareable_memory.h"
#include "common/status/status_macros.h"
#include "tests/common/comm/local_ranks.h"
#include "tests/support/status_matchers.h"

namespace tandem::comm {
namespace {

using ::tandem::testing::IsOk;
using ::testing::Each;

absl::Status Expect(bool condition, const std::string& what) {
  return condition ? absl::OkStatus() : absl::InternalError(what);
}

// Copies, and notes what it was told of.
class NotingTaker : public MessageTaker {
 public:
  void Take(int64_t offset, const std::byte* from, std::byte* to, int64_t size,
            bool stays) override {
    in_order_ = in_order_ && offset == taken_ && size > 0 && offset % kTakenGrain == 0;
    // What stays lies behind what was told of before.
    in_order_ = in_order_ && (!stays || offset == 0 || from - offset == first_);
    if (offset == 0) first_ = from;
    if (from != to) std::memcpy(to, from, static_cast<size_t>(size));
    taken_ += size;
    ++num_portions_;
  }

  bool in_order() const { return in_order_; }
  int64_t taken() const { return taken_; }
  int num_portions() const { return num_portions_; }

 private:
  const std::byte* first_ = nullptr;
  bool in_order_ = true;
  int64_t taken_ = 0;
  int num_portions_ = 0;
};

// Bytes that differ from message to message and from place to place.
at::Tensor Contents(int64_t size, int number) {
  return at::arange(size, at::kLong).mul_(31).add_(number).remainder_(251).to(at::kByte);
}

class TakenMessages : public ::testing::TestWithParam<Backend> {};
INSTANTIATE_TEST_SUITE_P(Backends, TakenMessages,
                         ::testing::Values(kSharedMessages, kSocket, kLocalSocket, kSharedMemory,
                                           kGloo, kTlsSocket),
                         BackendName);

TEST_P(TakenMessages, ArriveInOrderOnceAndWhole) {
  const std::vector<int64_t> sizes = {0, 1, 4097, (int64_t{3} << 20) + 13, int64_t{1} << 20};
  const bool takes = GetParam().name != kSharedMemory.name && GetParam().name != kGloo.name;
  for (const bool lent : {false, true}) {
    SCOPED_TRACE(lent);
    const auto results = RunRanks(2, GetParam(), [&](ProcessGroup& group) -> absl::Status {
      auto* const taking = dynamic_cast<TakingGroup*>(&group);
      std::vector<at::Tensor> tensors;
      std::vector<std::unique_ptr<Work>> works;
      std::vector<NotingTaker> takers(sizes.size());
      for (size_t i = 0; i < sizes.size(); ++i) {
        const bool sends = group.rank() == 0;
        const at::Tensor contents = Contents(sizes[i], static_cast<int>(i));
        tensors.push_back(lent ? ShareableZeros(sizes[i], at::kByte)
                               : at::zeros({sizes[i]}, at::kByte));
        if (sends) tensors[i].copy_(contents);
        auto work = sends               ? group.Send(tensors[i], 1, "message")
                    : taking != nullptr ? taking->ReceiveWith(tensors[i], 0, "message", takers[i])
                                        : group.Receive(tensors[i], 0, "message");
        RETURN_IF_ERROR(work.status());
        works.push_back(*std::move(work));
      }
      for (auto& work : works) RETURN_IF_ERROR(work->Wait());
      for (size_t i = 0; group.rank() == 1 && i < sizes.size(); ++i) {
        RETURN_IF_ERROR(Expect(at::equal(tensors[i], Contents(sizes[i], static_cast<int>(i))),
                               "other bytes arrived"));
        RETURN_IF_ERROR(Expect(takers[i].in_order(), "portions out of order"));
        RETURN_IF_ERROR(Expect(takers[i].taken() == (takes ? sizes[i] : 0), "another size"));
      }
      const bool many = !takes || group.rank() == 0 || takers[3].num_portions() > 1;
      return Expect(many, "a large message came in one portion");
    });
    EXPECT_THAT(results, Each(IsOk()));
  }
}

}  // namespace
}  // namespace tandem::comm
