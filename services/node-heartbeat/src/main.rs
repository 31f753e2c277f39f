chassis::program!(node_heartbeat::main);
