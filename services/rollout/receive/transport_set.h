// TransportSet: a rank's end of every transport.
#ifndef TANDEM_SERVICES_ROLLOUT_RECEIVE_TRANSPORT_SET_H_
#define TANDEM_SERVICES_ROLLOUT_RECEIVE_TRANSPORT_SET_H_

#include "services/rollout/receive/receive_by_broadcast.h"
#include "services/rollout/receive/receive_by_reshard.h"
#include "services/rollout/receive/receive_by_stream.h"
#include "services/rollout/receive/receive_group.h"
#include "services/rollout/receive/receive_transport.h"
#include "services/rollout/receive/weight_store.h"

namespace tandem::rollout {

class TransportSet {
 public:
  // `store` outlives the set.
  TransportSet(WeightStore& store, StreamReader::Options stream)
      : group_(store.ops().device()),
        broadcast_(group_, store),
        reshard_(group_, store),
        stream_(store, stream) {}

  // Null if the request states none, or one that this build does not know. Any thread.
  ReceiveTransport* Find(common::v1::Transport transport) {
    switch (transport) {
      case common::v1::TRANSPORT_BROADCAST:
        return &broadcast_;
      case common::v1::TRANSPORT_RESHARD:
      case common::v1::TRANSPORT_DELTA:
        return &reshard_;
      case common::v1::TRANSPORT_STREAM:
        return &stream_;
      default:
        return nullptr;
    }
  }

  // Call on the receiver's worker: see ReceiveTransport::Drop().
  void Drop() {
    broadcast_.Drop();
    reshard_.Drop();
    stream_.Drop();
  }

 private:
  ReceiveGroup group_;  // in which the update arrives, by whichever transport
  ReceiveByBroadcast broadcast_;
  ReceiveByReshard reshard_;
  ReceiveByStream stream_;
};

}  // namespace tandem::rollout

#endif  // TANDEM_SERVICES_ROLLOUT_RECEIVE_TRANSPORT_SET_H_
