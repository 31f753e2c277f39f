chassis::program!(quota::main);
