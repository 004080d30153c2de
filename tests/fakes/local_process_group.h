// LocalWorld: a process group whose ranks are threads of one process. Collectives have the
// semantics of comm::ProcessGroup, check that all ranks issue the same operation of the same size,
// and move no byte before the last rank has issued it, so a result that is read without Wait() is a
// wrong one.
//
//   LocalWorld world(3);
//   world.Run([](comm::ProcessGroup& group) { ...; });   // on a thread for each rank
#ifndef TANDEM_TESTS_FAKES_LOCAL_PROCESS_GROUP_H_
#define TANDEM_TESTS_FAKES_LOCAL_PROCESS_GROUP_H_

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/comm/process_group.h"

namespace tandem::testing {

class LocalWorld {
 public:
  explicit LocalWorld(int size, absl::Duration timeout = absl::Seconds(60))
      : size_(size), timeout_(timeout) {}

  std::unique_ptr<comm::ProcessGroup> Join(int rank);
  int size() const { return size_; }

  // Calls `body` for every rank at once, each on a thread of its own; returns when all have.
  void Run(const std::function<void(comm::ProcessGroup&)>& body) {
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([this, rank, &body] {
        at::set_num_threads(1);
        const std::unique_ptr<comm::ProcessGroup> group = Join(rank);
        body(*group);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  friend class LocalGroup;
  friend class LocalWork;

  // One operation that several ranks enter.
  struct Meeting {
    std::string what;  // equal on all ranks
    int expected = 0;
    int arrived = 0;
    std::vector<at::Tensor> in, out;  // by rank
    std::function<void(Meeting&)> perform;
    bool done = false;
  };

  std::shared_ptr<Meeting> Enter(const std::string& key, const std::string& what, int expected,
                                 int rank, at::Tensor in, at::Tensor out,
                                 std::function<void(Meeting&)> perform) {
    absl::MutexLock lock(&mu_);
    std::shared_ptr<Meeting>& meeting = meetings_[key];
    if (meeting == nullptr) {
      meeting = std::make_shared<Meeting>();
      meeting->what = what;
      meeting->expected = expected;
      meeting->in.resize(size_);
      meeting->out.resize(size_);
    } else if (meeting->what != what && broken_.ok()) {
      broken_ = absl::InternalError(absl::StrCat("rank ", rank, " issued ", what,
                                                 " where another rank issued ", meeting->what));
    }
    meeting->in[rank] = std::move(in);
    meeting->out[rank] = std::move(out);
    const std::shared_ptr<Meeting> result = meeting;
    if (++result->arrived == expected && broken_.ok()) {
      perform(*result);
      result->done = true;
      meetings_.erase(key);
    }
    return result;
  }

  absl::Status Await(const Meeting& meeting) {
    absl::MutexLock lock(&mu_);
    const auto ready = [&] {
      mu_.AssertReaderHeld();
      return meeting.done || !broken_.ok();
    };
    if (!mu_.AwaitWithTimeout(absl::Condition(&ready), timeout_)) {
      broken_ = absl::DeadlineExceededError(absl::StrCat(meeting.what, ": ", meeting.arrived,
                                                         " of ", meeting.expected, " ranks came"));
    }
    return meeting.done ? absl::OkStatus() : broken_;
  }

  void Break(absl::Status status) {
    absl::MutexLock lock(&mu_);
    if (broken_.ok()) broken_ = std::move(status);
  }
  absl::Status status() const {
    absl::MutexLock lock(&mu_);
    return broken_;
  }

  const int size_;
  const absl::Duration timeout_;
  mutable absl::Mutex mu_;
  std::map<std::string, std::shared_ptr<Meeting>> meetings_ ABSL_GUARDED_BY(mu_);
  absl::Status broken_ ABSL_GUARDED_BY(mu_);
};

class LocalWork : public comm::Work {
 public:
  LocalWork(LocalWorld& world, std::shared_ptr<LocalWorld::Meeting> meeting)
      : world_(world), meeting_(std::move(meeting)) {}
  absl::Status Wait() override { return world_.Await(*meeting_); }
  bool IsCompleted() override {
    absl::MutexLock lock(&world_.mu_);
    return meeting_->done || !world_.broken_.ok();
  }

 private:
  LocalWorld& world_;
  const std::shared_ptr<LocalWorld::Meeting> meeting_;
};

class LocalGroup : public comm::ProcessGroup {
 public:
  LocalGroup(LocalWorld& world, int rank)
      : world_(world), rank_(rank), sent_(world.size()), received_(world.size()) {}

  const std::string& name() const override { return name_; }
  int rank() const override { return rank_; }
  int size() const override { return world_.size(); }

  WorkOr AllGather(at::Tensor full, at::Tensor shard, absl::string_view tag) override {
    return Collective("AllGather", tag, shard, full, [](LocalWorld::Meeting& m) {
      const at::Tensor whole = at::cat(m.in);
      for (at::Tensor& out : m.out) out.copy_(whole);
    });
  }
  WorkOr ReduceScatter(at::Tensor shard, at::Tensor full, absl::string_view tag) override {
    return Collective("ReduceScatter", tag, full, shard, [](LocalWorld::Meeting& m) {
      const int64_t n = m.out[0].numel();
      for (size_t r = 0; r < m.out.size(); ++r) {
        m.out[r].zero_();
        for (const at::Tensor& in : m.in)
          m.out[r].add_(in.narrow(0, static_cast<int64_t>(r) * n, n));
      }
      for (at::Tensor& in : m.in) in.fill_(-12345.0);  // it may be overwritten
    });
  }
  WorkOr AllToAll(at::Tensor out, at::Tensor in, absl::string_view tag) override {
    return Collective("AllToAll", tag, in, out, [](LocalWorld::Meeting& m) {
      const int64_t ranks = static_cast<int64_t>(m.in.size());
      const int64_t n = m.in[0].numel() / ranks;
      for (int64_t to = 0; to < ranks; ++to) {
        for (int64_t from = 0; from < ranks; ++from) {
          m.out[to].narrow(0, from * n, n).copy_(m.in[from].narrow(0, to * n, n));
        }
      }
    });
  }
  WorkOr AllReduce(at::Tensor tensor, comm::ReduceOp op, absl::string_view tag) override {
    return Collective("AllReduce", tag, tensor, tensor, [op](LocalWorld::Meeting& m) {
      const at::Tensor all = at::stack(m.in);
      const at::Tensor result = op == comm::ReduceOp::kSum   ? all.sum(0)
                                : op == comm::ReduceOp::kMax ? all.amax(0)
                                                             : all.amin(0);
      for (at::Tensor& out : m.out) out.copy_(result);
    });
  }
  WorkOr Broadcast(at::Tensor tensor, int root, absl::string_view tag) override {
    return Collective(absl::StrCat("Broadcast from ", root), tag, tensor, tensor,
                      [root](LocalWorld::Meeting& m) {
                        const at::Tensor source = m.in[root].clone();
                        for (at::Tensor& out : m.out) out.copy_(source);
                      });
  }
  WorkOr Send(at::Tensor tensor, int to, absl::string_view) override {
    return PointToPoint(rank_, to, sent_[to]++, tensor, {});
  }
  WorkOr Receive(at::Tensor tensor, int from, absl::string_view) override {
    return PointToPoint(from, rank_, received_[from]++, {}, tensor);
  }
  absl::Status Barrier(absl::string_view tag) override {
    const at::Tensor none = at::zeros({1});
    auto work = Collective("Barrier", tag, none, none, [](LocalWorld::Meeting&) {});
    if (!work.ok()) return work.status();
    return (*work)->Wait();
  }
  void SetTimeout(absl::Duration) override {}
  absl::Status status() const override { return world_.status(); }
  void Abort(absl::string_view reason) override {
    world_.Break(absl::AbortedError(absl::StrCat("rank ", rank_, " aborted: ", reason)));
  }

 private:
  WorkOr Collective(const std::string& op, absl::string_view tag, const at::Tensor& in,
                    const at::Tensor& out, std::function<void(LocalWorld::Meeting&)> perform) {
    if (const absl::Status status = world_.status(); !status.ok()) return status;
    return std::make_unique<LocalWork>(
        world_, world_.Enter(absl::StrCat("collective ", num_collectives_++),
                             absl::StrCat(op, " '", tag, "' of ", in.numel(), " to ", out.numel(),
                                          " ", c10::toString(in.scalar_type())),
                             world_.size(), rank_, in, out, std::move(perform)));
  }
  WorkOr PointToPoint(int from, int to, int64_t number, at::Tensor in, at::Tensor out) {
    if (const absl::Status status = world_.status(); !status.ok()) return status;
    const std::string key = absl::StrCat("from ", from, " to ", to, ", message ", number);
    return std::make_unique<LocalWork>(
        world_, world_.Enter(key, key, 2, rank_, std::move(in), std::move(out),
                             [from, to](LocalWorld::Meeting& m) { m.out[to].copy_(m.in[from]); }));
  }

  LocalWorld& world_;
  const int rank_;
  const std::string name_ = "local";
  int64_t num_collectives_ = 0;
  std::vector<int64_t> sent_, received_;  // messages, by peer
};

inline std::unique_ptr<comm::ProcessGroup> LocalWorld::Join(int rank) {
  return std::make_unique<LocalGroup>(*this, rank);
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_FAKES_LOCAL_PROCESS_GROUP_H_
