chassis::program!(scheduler::main);
